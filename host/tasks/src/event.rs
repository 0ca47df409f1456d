//! Events of tasks as they are stored: in a database JSON texts, exactly as they were encoded; in memory the values.

use std::borrow::Cow;
use std::sync::Arc;

use annex_protocol::{Message, StreamResponse};
use serde_json::Error as JsonError;

/// An event to append to a task. Clones share the content.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskEvent {
    /// An event that readers of the task are shown.
    Stream(Arc<StreamResponse>),
    /// A message joins the history, as when a client's message starts a further turn. Readers are not shown it.
    Message(Arc<Message>),
}

impl From<StreamResponse> for TaskEvent {
    fn from(event: StreamResponse) -> Self {
        Self::Stream(Arc::new(event))
    }
}

impl From<Message> for TaskEvent {
    fn from(message: Message) -> Self {
        Self::Message(Arc::new(message))
    }
}

impl TaskEvent {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Stream(_) => Kind::Stream,
            Self::Message(_) => Kind::Message,
        }
    }

    /// The event as JSON on one line.
    pub(crate) fn encode(&self) -> Result<String, JsonError> {
        match self {
            Self::Stream(event) => serde_json::to_string(event.as_ref()),
            Self::Message(message) => serde_json::to_string(message.as_ref()),
        }
    }

    pub(crate) fn decode(kind: Kind, json: &str) -> Result<Self, JsonError> {
        match kind {
            Kind::Stream => serde_json::from_str::<StreamResponse>(json).map(Self::from),
            Kind::Message => serde_json::from_str::<Message>(json).map(Self::from),
        }
    }
}

/// The kind of an event. Databases store its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Message,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Message => "message",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        // Only these two names are written. JSON of another kind under either is an error when it is decoded.
        if name == Self::Message.name() { Self::Message } else { Self::Stream }
    }
}

/// An event as it was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// Its place in the log of its task; the first is 1.
    pub seq: u64,
    pub(crate) content: EventContent,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EventContent {
    Json(Kind, String),
    Value(TaskEvent),
}

impl StoredEvent {
    /// True if this stored event has the content of `event`.
    #[must_use]
    pub fn is(&self, event: &TaskEvent) -> bool {
        match &self.content {
            EventContent::Json(kind, json) => *kind == event.kind() && event.encode().is_ok_and(|event| event == *json),
            EventContent::Value(stored) => stored == event,
        }
    }

    /// The event as JSON, a StreamResponse on one line; `None` when readers are not shown it.
    ///
    /// # Errors
    /// When the event cannot be encoded.
    pub fn stream_json(&self) -> Result<Option<Cow<'_, str>>, JsonError> {
        match &self.content {
            EventContent::Json(Kind::Stream, json) => Ok(Some(Cow::Borrowed(json))),
            EventContent::Value(event @ TaskEvent::Stream(_)) => event.encode().map(Cow::Owned).map(Some),
            EventContent::Json(Kind::Message, _) | EventContent::Value(TaskEvent::Message(_)) => Ok(None),
        }
    }

    /// Decodes the event, where it is not a value already.
    ///
    /// # Errors
    /// When it was stored by a version of the software that wrote something else.
    pub fn decode(&self) -> Result<TaskEvent, JsonError> {
        match &self.content {
            EventContent::Json(kind, json) => TaskEvent::decode(*kind, json),
            EventContent::Value(event) => Ok(event.clone()),
        }
    }
}
