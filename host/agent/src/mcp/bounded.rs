//! Limits the messages that an MCP server sends without being asked. This client drops such messages. Too many of them
//! end the connection.
//!
//! The size of a message and of a stream is limited elsewhere, by the code that reads bytes.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use annex_protocol::portable;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use rmcp::model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::SseError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use sse_stream::Sse;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// The largest message over HTTP, in bytes.
pub(super) const MAX_MESSAGE: usize = 16 << 20;
/// The maximum size of a stream that contains an answer, in bytes.
pub(super) const MAX_BESIDE: usize = MAX_MESSAGE + (4 << 20);
/// The maximum number of bytes that a stream may have after the answer.
const MAX_BEHIND: usize = 64 << 10;
/// The number of bytes that every smaller message counts as.
const MIN_MESSAGE: usize = 1 << 10;
/// The maximum number of the server's own requests that are passed to the library during one answer. The library
/// refuses each request, and sends the refusal in a new request to the server.
const MAX_REQUESTS: usize = 4;

/// Texts with more bytes are processed on a separate thread.
const LONG: usize = 256 << 10;

/// The error for an event longer than [`MAX_MESSAGE`], or a stream longer than [`MAX_BESIDE`].
#[derive(Debug, thiserror::Error)]
#[error("the answer has an event of more than {MAX_MESSAGE} bytes, or more than {MAX_BESIDE} bytes in all")]
pub(super) struct TooMuch;

type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// Filters the events of an answer.
struct Answer {
    server: Arc<str>,
    events: EventStream,
    /// The id of the request until its answer arrives; `None` for a resumed stream without a known request.
    id: Option<RequestId>,
    bytes_left: usize,
    requests_left: usize,
    is_over: bool,
}

/// The fields of a message that tell its kind.
#[derive(Deserialize)]
struct Head {
    id: Option<RequestId>,
    method: Option<IgnoredAny>,
}

/// Filters the events of an answer, and returns the events for the library.
pub(super) fn answer(
    server: Arc<str>,
    events: EventStream,
    id: Option<RequestId>,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    let answer = Answer { server, events, id, bytes_left: MAX_BESIDE, requests_left: MAX_REQUESTS, is_over: false };
    stream::unfold(answer, |mut answer| async move { answer.next().await.map(|event| (event, answer)) })
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        while !self.is_over {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(SseError::Body(error)) if is_too_much(error.as_ref()) => return self.cut_off(),
                Err(error) => return Some(Err(error)),
            };
            let bytes = event.data.as_ref().map_or(0, String::len).max(MIN_MESSAGE);
            let Some(left) = self.bytes_left.checked_sub(bytes) else { return self.cut_off() };
            self.bytes_left = left;
            match repaired(event).await {
                Ok(event) => {
                    if let Some(event) = self.taken(event) {
                        return Some(Ok(event));
                    }
                }
                Err(error) => return Some(Err(SseError::Body(Box::new(error)))),
            }
        }
        None
    }

    /// Ends the answer. If the call has no answer yet, adds an error response for the call.
    fn cut_off(&mut self) -> Option<Result<Sse, SseError>> {
        self.is_over = true;
        tracing::warn!(server = %self.server, "an MCP server sends too much with an answer; it is cut off");
        self.id.take().map(|id| Ok(cut_off(&id)))
    }

    /// Returns the event if it is to be passed to the library. Otherwise returns only the event's id, which is needed to resume
    /// the stream.
    fn taken(&mut self, event: Sse) -> Option<Sse> {
        let data = event.data.as_deref().unwrap_or_default();
        let is_taken = match serde_json::from_str(data) {
            Ok(Head { method: None, id: Some(id) }) => {
                // The answer has arrived, so no error is needed in its place. The library reads on for a moment, in
                // order to reuse the connection.
                if self.id.as_ref() == Some(&id) {
                    self.id = None;
                }
                self.bytes_left = self.bytes_left.min(MAX_BEHIND);
                true
            }
            Ok(Head { method: Some(_), id: Some(_) }) if self.requests_left > 0 => {
                self.requests_left -= 1;
                true
            }
            _ => false,
        };
        // The id is kept, because an answer that breaks off is resumed after the last id.
        let is_mark = event.id.is_some() || event.retry.is_some();
        let mark = |event: Sse| Sse { data: None, event: None, ..event };
        if is_taken { Some(event) } else { is_mark.then(|| mark(event)) }
    }
}

/// Rewrites the message in the event so that every JSON parser can read it.
async fn repaired(mut event: Sse) -> io::Result<Sse> {
    if let Some(data) = event.data.take() {
        event.data = Some(aside_if_long(data, |data| portable::repaired(&data).unwrap_or(data)).await?);
    }
    Ok(event)
}

/// Processes a text. A long text is processed on a separate thread.
///
/// This does not use [`crate::work::aside`], which serves tenants fairly. The task of a connection belongs to no
/// tenant, so the work of all connections would wait in one queue.
pub(super) async fn aside_if_long<T, R>(text: T, work: impl FnOnce(T) -> R + Send + 'static) -> io::Result<R>
where
    T: AsRef<[u8]> + Send + 'static,
    R: Send + 'static,
{
    if text.as_ref().len() <= LONG {
        return Ok(work(text));
    }
    spawn_blocking(move || work(text)).await.map_err(io::Error::other)
}

fn is_too_much(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.and_then(io::Error::get_ref).is_some_and(|error| error.is::<TooMuch>())
}

/// An error response for a call whose answer was cut off.
fn cut_off(id: &RequestId) -> Sse {
    let error = json!({"code": -32000, "message": "the server sent too much with its answer"});
    Sse::default().data(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
}

/// A connection to a program. Unrequested messages use up a budget, which grows each second.
pub(super) struct BoundedProgram<T> {
    server: Arc<str>,
    inner: T,
    /// The number of requests that the program has not answered yet.
    asked: usize,
    left: u64,
    since: Instant,
}

const MOST_UNASKED: u64 = 4_096;
const UNASKED_PER_SECOND: u64 = 100;
/// The number of messages that a request of the program counts as. This client must answer a request.
const REQUEST_COST: u64 = 64;

impl<T> BoundedProgram<T> {
    pub(super) fn new(server: &str, inner: T) -> Self {
        Self { server: server.into(), inner, asked: 0, left: MOST_UNASKED, since: Instant::now() }
    }

    /// Takes `cost` from the budget. Returns false if the budget has too little left.
    fn spend(&mut self, cost: u64) -> bool {
        let seconds = self.since.elapsed().as_secs();
        if seconds > 0 {
            self.since += Duration::from_secs(seconds);
            self.left = self.left.saturating_add(seconds.saturating_mul(UNASKED_PER_SECOND)).min(MOST_UNASKED);
        }
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Returns what a message costs, and true if the message is to be passed to the library.
    fn judge(&mut self, message: &ServerJsonRpcMessage) -> (u64, bool) {
        match message {
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => match self.asked.checked_sub(1) {
                Some(asked) => {
                    self.asked = asked;
                    (0, true)
                }
                None => (1, false),
            },
            JsonRpcMessage::Request(_) => (REQUEST_COST, true),
            JsonRpcMessage::Notification(_) => (1, false),
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedProgram<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if matches!(item, JsonRpcMessage::Request(_)) {
            self.asked = self.asked.saturating_add(1);
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.inner.receive().await?;
            let (cost, is_taken) = self.judge(&message);
            if !self.spend(cost) {
                tracing::warn!(server = %self.server, "an MCP server sends too many unrequested messages; it is stopped");
                return None;
            }
            if is_taken {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn a_call_that_is_answered_is_not_answered_again_when_its_server_is_cut_off() {
        let message = |message: serde_json::Value| Sse::default().data(message.to_string());
        let result = message(json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        let notification = message(json!({"jsonrpc": "2.0", "method": "notifications/progress"}));
        let flood = |bytes: usize| iter::repeat_n(notification.clone(), 1 + bytes / MIN_MESSAGE);
        let answered = iter::once(result).chain(flood(MAX_BEHIND)).collect::<Vec<_>>();
        // The second one gets an error in the server's place.
        for events in [answered, flood(MAX_BESIDE).collect()] {
            let events = stream::iter(events.into_iter().map(Ok)).boxed();
            let passed = answer("far".into(), events, Some(RequestId::Number(1)));
            assert_eq!(passed.count().await, 1);
        }
    }

    #[tokio::test]
    async fn a_long_text_is_worked_on_by_a_thread_that_serves_nobody() {
        let here = thread::current().id();
        for (length, is_aside) in [(LONG, false), (LONG + 1, true)] {
            let there = aside_if_long(vec![0_u8; length], |_| thread::current().id()).await.unwrap();
            assert_eq!(there != here, is_aside, "{length}");
        }
    }

    #[tokio::test]
    async fn what_not_every_reader_takes_is_replaced_in_an_event_of_any_length() {
        for length in [1, LONG] {
            let padding = "x".repeat(length);
            let event = Sse::default().data(format!("{{\"a\":\"\\ud800{padding}\"}}"));
            let expected = format!("{{\"a\":\"\\ufffd{padding}\"}}");
            assert!(repaired(event).await.unwrap().data.is_some_and(|data| data == expected), "{length}");
        }
    }
}
