//! Server-sent events: one JSON-RPC response per event, encoded once and wrapped per reader.

use std::convert::Infallible;
use std::time::Duration;

use annex_protocol::jsonrpc::{self, RequestId};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::task_log::LogReader;

/// A comment line this often keeps proxies from closing a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// When a stream ends, besides when its task is finished.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The turn is over: the task is finished or interrupted.
    TurnEnds,
    /// Only the end of the task.
    TaskEnds,
}

/// One event and the end.
pub(crate) fn single(id: &RequestId, result: &str) -> Response {
    respond(stream::iter([event(id, result)]))
}

/// The events of one turn.
pub(crate) fn turn(id: RequestId, first: &str, reader: Option<LogReader>, closing: CancellationToken) -> Response {
    respond(events(id, first, reader, closing, Until::TurnEnds))
}

/// The events of a task to its end, over as many turns as it takes.
pub(crate) fn tail(id: RequestId, first: &str, reader: LogReader, closing: CancellationToken) -> Response {
    respond(events(id, first, Some(reader), closing, Until::TaskEnds))
}

fn events(
    id: RequestId,
    first: &str,
    reader: Option<LogReader>,
    closing: CancellationToken,
    until: Until,
) -> impl Stream<Item = Event> + Send + use<> {
    let opening = stream::iter([event(&id, first)]);
    let rest = stream::unfold((id, reader), move |(id, reader)| {
        let closing = closing.clone();
        async move {
            let mut reader = reader?;
            let logged = tokio::select! {
                biased;
                logged = reader.next() => logged?,
                () = closing.cancelled() => return None,
            };
            let event = event(&id, logged.json());
            let over = until == Until::TurnEnds && logged.interrupts();
            Some((event, (id, Some(reader).filter(|_| !over))))
        }
    });
    opening.chain(rest)
}

fn event(id: &RequestId, result: &str) -> Event {
    Event::default().data(jsonrpc::success_raw(id, result))
}

fn respond(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
