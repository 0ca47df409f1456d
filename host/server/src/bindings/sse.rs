//! Server-sent events: one per event of a stream, encoded once and wrapped by the binding.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use annex_operations::answer::EventStream;
use annex_operations::tasks::log::LoggedEvent;
use annex_protocol::A2aError;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{Stream, StreamExt};

/// A comment line this often keeps proxies from closing a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams the events, each as the text that `data` makes of it.
pub(crate) fn respond<T: 'static>(
    events: impl Stream<Item = T> + Send + 'static,
    data: impl Fn(&T) -> String + Send + 'static,
) -> Response {
    kept_alive(events.map(move |event| Event::default().data(data(&event))))
}

/// The events of a task, each with its number as `id`, so that a reader whose stream broke off can say which one it has.
pub(crate) fn respond_numbered(
    events: EventStream,
    data: impl Fn(&Result<Arc<LoggedEvent>, A2aError>) -> String + Send + 'static,
) -> Response {
    kept_alive(events.map(move |event| {
        let seq = event.as_ref().ok().and_then(|event| event.seq());
        let numbered = seq.map_or_else(Event::default, |seq| Event::default().id(seq.to_string()));
        numbered.data(data(&event))
    }))
}

fn kept_alive(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// A stream of one event.
pub(crate) fn respond_once(data: &str) -> Response {
    let event = Event::default().data(data);
    Sse::new(futures::stream::once(std::future::ready(Ok::<_, Infallible>(event)))).into_response()
}
