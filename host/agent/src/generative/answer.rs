//! Reads the answer of a model while it arrives. The form of the answer depends on the API. The size of an answer is
//! limited.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use annex_egress::{Events, ReadError, StreamLimits};
use annex_protocol::{Json, JsonObject, portable};
use futures::{StreamExt, stream};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use crate::model::{ModelError, ModelEvent, ModelStream, ToolCall};
use crate::steps::Tokens;
use crate::template_agent::MAX_CALLS;

/// The longest wait for the head of an answer, and for each further piece. Models think before they answer. The whole
/// answer may take as long as the turn.
const SILENCE: Duration = Duration::from_secs(120);
/// The largest event and the largest whole answer, in bytes. An event is a piece of text or a whole tool call. APIs
/// send a few hundred bytes per token.
const LIMITS: StreamLimits = StreamLimits { event: 1 << 20, total: 64 << 20 };
/// The maximum size of all tool calls in one answer together, in bytes.
const MAX_CALL_BYTES: usize = 1 << 20;
/// The maximum number of bytes that are read from an error response, and the longest time for reading these bytes.
const MAX_REFUSAL: usize = 1 << 10;
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);

/// The reason why a model's answer is missing or incomplete. The text of the error never contains the API key.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the request failed")]
    Request(#[source] reqwest::Error),
    #[error("it sent nothing for {} s", SILENCE.as_secs())]
    Silent,
    #[error("it answered {status}: {words}")]
    Status { status: StatusCode, words: String },
    #[error(transparent)]
    Read(#[from] ReadError<reqwest::Error>),
    #[error("an event of its answer is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("it reported an error: {0}")]
    Reported(String),
    #[error("its answer has more than {MAX_CALLS} calls of tools")]
    TooManyCalls,
    #[error("the calls of tools in its answer are longer than {MAX_CALL_BYTES} bytes")]
    LongCalls,
    #[error("its answer has no event; does the endpoint stream, and speak this adapter's interface?")]
    Empty,
}

impl AnswerError {
    /// Creates the error for a failure that the provider reports. The provider's text is shortened for the log.
    pub(super) fn reported(words: &Value) -> Self {
        let text = words.pointer("/message").and_then(Value::as_str).map_or_else(|| words.to_string(), str::to_owned);
        Self::Reported(annex_text::line_within(&text, MAX_REFUSAL))
    }
}

/// The functions that read the answers of one API.
pub(super) struct Reader {
    /// Splits an answer into events.
    pub(super) split: fn(Response, StreamLimits) -> Events<Response>,
    /// Reads one event of the answer into the queue. Returns true if it was the last event.
    pub(super) read: fn(&str, &mut EventQueue) -> Result<bool, AnswerError>,
}

/// Sends the request and returns the events of the answer.
pub(super) async fn ask(model: &str, request: RequestBuilder, reader: Reader) -> Result<ModelStream, ModelError> {
    let model = model.to_owned();
    let failed = move |error: AnswerError| ModelError { model: model.clone(), source: error.into() };
    let response = head(request).await.map_err(&failed)?;
    let events = (reader.split)(response, LIMITS);
    let answer = Answer { events, reader, queue: EventQueue::default(), is_over: false, has_begun: false };
    let pieces = stream::try_unfold(answer, Answer::step);
    Ok(pieces.map(move |piece| piece.map_err(&failed)).boxed())
}

async fn head(request: RequestBuilder) -> Result<Response, AnswerError> {
    let sent = timeout(SILENCE, request.send()).await.map_err(|_| AnswerError::Silent)?;
    let mut response = sent.map_err(|error| AnswerError::Request(error.without_url()))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let words = timeout(REFUSAL_PATIENCE, annex_egress::beginning(&mut response, MAX_REFUSAL)).await;
    let words = String::from_utf8_lossy(&words.unwrap_or_default()).into_owned();
    Err(AnswerError::Status { status, words: annex_text::line_within(words.trim(), MAX_REFUSAL) })
}

struct Answer {
    events: Events<Response>,
    reader: Reader,
    queue: EventQueue,
    is_over: bool,
    has_begun: bool,
}

impl Answer {
    async fn step(mut self) -> Result<Option<(ModelEvent, Self)>, AnswerError> {
        loop {
            if let Some(event) = self.queue.ready.pop_front() {
                return Ok(Some((event, self)));
            }
            if self.is_over {
                return Ok(None);
            }
            let next = timeout(SILENCE, self.events.next()).await.map_err(|_| AnswerError::Silent)?;
            let next = next.map_err(|error| AnswerError::Read(error.map_broken(reqwest::Error::without_url)))?;
            self.is_over = match &next {
                Some(event) => {
                    // A value that some readers refuse would fail the whole answer, even in a field that is not used.
                    let repaired = portable::repaired(event);
                    (self.reader.read)(repaired.as_deref().unwrap_or(event), &mut self.queue)?
                }
                None if !self.has_begun => return Err(AnswerError::Empty),
                None => true,
            };
            self.has_begun = true;
            if self.is_over {
                self.queue.end();
            }
        }
    }
}

/// The queue of the events that were read from an answer, and that the agent has not received yet.
#[derive(Default)]
pub(super) struct EventQueue {
    ready: VecDeque<ModelEvent>,
    /// The tool calls, which follow at the end of the answer.
    pub(super) calls: Calls,
    /// The token counts, which follow after the calls.
    pub(super) tokens: Tokens,
}

impl EventQueue {
    pub(super) fn say(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.ready.push_back(ModelEvent::Text(piece.to_owned()));
        }
    }

    pub(super) fn think(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.ready.push_back(ModelEvent::Thought(piece.to_owned()));
        }
    }

    fn end(&mut self) {
        self.ready.extend(self.calls.take());
        if self.tokens != Tokens::default() {
            self.ready.push_back(ModelEvent::Tokens(self.tokens.bounded()));
        }
    }
}

/// The tool calls of an answer. They arrive in pieces; several may be incomplete at a time, each under its own number.
#[derive(Default)]
pub(super) struct Calls {
    calls: BTreeMap<u64, OpenCall>,
    bytes: usize,
}

#[derive(Default)]
struct OpenCall {
    id: String,
    name: String,
    arguments: String,
    signatures: Vec<String>,
}

impl Calls {
    /// Adds a piece to the call with this number. The first piece has the id and the name.
    pub(super) fn add(&mut self, number: u64, id: &str, name: &str, arguments: &str) -> Result<(), AnswerError> {
        self.grow(id.len() + name.len() + arguments.len())?;
        if self.calls.len() == MAX_CALLS && !self.calls.contains_key(&number) {
            return Err(AnswerError::TooManyCalls);
        }
        let call = self.calls.entry(number).or_default();
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        call.arguments.push_str(arguments);
        Ok(())
    }

    /// Adds a call that came in one piece.
    pub(super) fn add_whole(
        &mut self,
        id: &str,
        name: &str,
        arguments: Option<&Value>,
        signature: Option<&str>,
    ) -> Result<(), AnswerError> {
        let number = self.calls.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        self.add(number, id, name, &arguments.map(Value::to_string).unwrap_or_default())?;
        if let Some(signature) = signature {
            self.grow(signature.len())?;
            self.calls.entry(number).or_default().signatures.push(signature.to_owned());
        }
        Ok(())
    }

    fn take(&mut self) -> impl Iterator<Item = ModelEvent> + use<> {
        std::mem::take(&mut self.calls).into_values().map(|call| ModelEvent::Call(call.into()))
    }

    fn grow(&mut self, bytes: usize) -> Result<(), AnswerError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_CALL_BYTES { Err(AnswerError::LongCalls) } else { Ok(()) }
    }
}

impl From<OpenCall> for ToolCall {
    fn from(call: OpenCall) -> Self {
        let text = call.arguments.trim();
        // The arguments become a part of an object. They are cut here, so that they are not cut again there.
        let repaired = portable::repaired_within(text, Json::MAX_DEPTH - 1);
        let text = repaired.as_deref().unwrap_or(text);
        let arguments = match text {
            // A model that has nothing to say to a tool leaves the arguments out.
            "" | "null" => JsonObject::new().to_json(),
            text => serde_json::from_str(text),
        };
        // Invalid JSON becomes a string, and the model gets an error about it.
        let arguments = arguments.unwrap_or_else(|_| Json::string(text));
        Self { id: call.id, name: call.name, arguments, signatures: call.signatures }
    }
}
