//! Server-sent events, one for each event of a stream. The JSON of a task's event is encoded once for all readers, and
//! each binding wraps this JSON.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use annex_operations::answer::EventStream;
use annex_operations::tasks::log::LoggedEvent;
use annex_protocol::A2aError;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{Stream, StreamExt};

use crate::access_log;

/// The interval of comment lines, which keep proxies from closing a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers with a stream of server-sent events. `data` makes the text of each event.
pub(crate) fn respond<T: 'static>(
    events: impl Stream<Item = Result<T, A2aError>> + Send + 'static,
    data: impl Fn(&Result<T, A2aError>) -> String + Send + 'static,
) -> Response {
    kept_alive(events.map(move |event| {
        let event = event.inspect_err(access_log::note_error);
        with_data(Event::default(), data(&event))
    }))
}

/// Answers with a stream of a task's events. Each event has its number as the SSE field `id`, so that a reader can
/// resume after a broken connection.
pub(crate) fn respond_numbered(
    events: EventStream,
    data: impl Fn(&Result<Arc<LoggedEvent>, A2aError>) -> String + Send + 'static,
) -> Response {
    kept_alive(events.map(move |event| {
        let event = event.inspect_err(access_log::note_error);
        let seq = event.as_ref().ok().and_then(|event| event.seq());
        let numbered = seq.map_or_else(Event::default, |seq| Event::default().id(seq.to_string()));
        with_data(numbered, data(&event))
    }))
}

/// Sets `json` as the data of an event. In the standard only CR and LF end a line, but the official Python client also
/// splits lines at U+0085, U+2028 and U+2029. These characters are therefore escaped, which does not change the meaning
/// of JSON.
fn with_data(event: Event, json: String) -> Event {
    const LINE_ENDS: [(&str, &str); 3] = [("\u{85}", "\\u0085"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")];
    let escaped = LINE_ENDS.iter().fold(json, |json, (end, escape)| match json.contains(end) {
        true => json.replace(end, escape),
        false => json,
    });
    event.data(escaped)
}

fn kept_alive(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Answers with a stream of one event.
pub(crate) fn respond_once(data: &str) -> Response {
    let event = with_data(Event::default(), data.to_owned());
    Sse::new(futures::stream::once(std::future::ready(Ok::<_, Infallible>(event)))).into_response()
}
