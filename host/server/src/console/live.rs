//! The stream of new requests, as server-sent events. Each event is a row of the list, or says how many rows are missing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream::{StreamExt, unfold};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::operator::{ConsoleState, Operator, REFRESH};
use super::page::failed;
use super::requests::{LIVE, row};
use crate::admin::error::AdminError;
use crate::admin::requests::{RequestQuery, visible_to};
use crate::requests::{Listener, MAX_LISTENERS, News, RequestFilter, RequestRecord, VisibleRequests};

/// The interval in which a stream checks that its operator is still logged in. A quiet stream sends a comment then, which
/// keeps proxies from closing it.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// The maximum number of earlier requests with which a stream begins.
const MAX_EARLIER: usize = 100;
/// The header field with the id of the last event that the browser has received.
const LAST_EVENT_ID: &str = "last-event-id";

pub(super) fn routes() -> Router<ConsoleState> {
    Router::new().route(LIVE, get(requests))
}

async fn requests(
    State(console): State<ConsoleState>,
    _operator: Operator,
    headers: HeaderMap,
    Query(query): Query<RequestQuery>,
) -> Response {
    match LiveRequests::begin(console, headers, &query) {
        Ok(live) => {
            let events = unfold(live, |mut live| async move {
                let event = live.next().await?;
                Some((event, live))
            });
            Sse::new(events.map(Ok::<_, Infallible>)).into_response()
        }
        Err(error) => failed(&error),
    }
}

/// The state of one stream.
struct LiveRequests {
    console: ConsoleState,
    /// The header fields of the request, which show who is logged in.
    headers: HeaderMap,
    listener: Listener,
    /// Requests that ended before the stream began.
    earlier: VecDeque<Arc<RequestRecord>>,
    filter: RequestFilter,
    /// The tenant of the query.
    tenant: Option<String>,
    visible: VisibleRequests,
    /// The number of the last request that the stream has read.
    last: u64,
    checked: Instant,
    closing: CancellationToken,
}

impl LiveRequests {
    fn begin(console: ConsoleState, mut headers: HeaderMap, query: &RequestQuery) -> Result<Self, AdminError> {
        let filter = query.filter().map_err(AdminError::invalid)?;
        let visible = visible_to(query.tenant.as_deref());
        let recent = &console.gate.access_log.recent;
        let listener = recent.listen().ok_or_else(|| {
            let message = format!("{MAX_LISTENERS} pages get new requests already; close one of them");
            AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", message)
        })?;
        let resumed = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
        // A page that was opened long ago begins with the newest requests.
        let after = resumed.or(query.after).unwrap_or(u64::MAX);
        let mut earlier = recent.list(&filter, &visible, (None, MAX_EARLIER));
        earlier.retain(|record| record.number > after);
        earlier.reverse();
        // A stream does not count as use, as the requests of htmx do not: it would keep an absent operator logged in.
        headers.insert(REFRESH, HeaderValue::from_static("true"));
        let app = console.gate.loaded();
        let closing = app.map(|app| app.process.closing.clone()).unwrap_or_default();
        let earlier = earlier.into();
        let (tenant, checked) = (query.tenant.clone(), Instant::now());
        Ok(Self { console, headers, listener, earlier, filter, tenant, visible, last: 0, checked, closing })
    }

    /// Waits for the next event. `None` if the server stops or the operator is not logged in any more.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.checked.elapsed() >= CHECK_INTERVAL {
                self.console.operator(&self.headers)?.check_read().ok()?;
                self.checked = Instant::now();
            }
            if let Some(record) = self.earlier.pop_front() {
                self.last = record.number;
                return Some(self.event_of(&record));
            }
            let news = tokio::select! {
                () = self.closing.cancelled() => return None,
                news = timeout(CHECK_INTERVAL, self.listener.next()) => news,
            };
            match news {
                Err(_) => return Some(Event::default().comment("")),
                Ok(None) => return None,
                Ok(Some(News::Missed(missed))) => {
                    return Some(Event::default().event("missed").data(missed.to_string()));
                }
                // A request may be among the earlier ones too.
                Ok(Some(News::Request(record))) if record.number > self.last => {
                    if self.visible.shows(&record) && self.filter.matches(&record) {
                        return Some(self.event_of(&record));
                    }
                }
                Ok(Some(News::Request(_))) => {}
            }
        }
    }

    fn event_of(&self, record: &RequestRecord) -> Event {
        let event = Event::default().id(record.number.to_string());
        match row(record, self.tenant.as_deref()) {
            Ok(html) => event.event("row").data(html),
            Err(_) => event.event("missed").data("1"),
        }
    }
}
