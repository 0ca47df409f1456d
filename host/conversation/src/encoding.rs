//! The stored form of entries and names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use annex_protocol::{Json, JsonObject, Message, Parts, StreamResponse, Timestamp};
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Event, EventError, Note, UserMessage};
use crate::state::StateDelta;

/// The kind of a stored entry. Databases store its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of the client that has an event in the history.
    Message,
    /// A message of the client that an extension has vetoed. It has no event in the history.
    Vetoed,
    Event,
    Update,
    Note,
}

/// An entry that is to be stored.
pub(crate) struct EncodedEntry {
    pub(crate) kind: Kind,
    pub(crate) json: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMessage<'a> {
    message: Cow<'a, Message>,
    /// The event without its parts. The message of the entry has the same parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<StoredEvent<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opens: Option<i64>,
}

/// The JSON of an event. Empty fields are left out.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredEvent<'a> {
    id: Cow<'a, str>,
    author: Cow<'a, str>,
    invocation_id: Cow<'a, str>,
    /// Milliseconds since 1970-01-01T00:00:00Z.
    timestamp: i64,
    #[serde(default, skip_serializing_if = "parts_are_empty")]
    parts: Cow<'a, Parts>,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    state_delta: JsonObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<StoredError<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredError<'a> {
    code: Cow<'a, str>,
    message: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StoredNote<'a> {
    Pins(Cow<'a, str>),
    UpstreamTask(Cow<'a, str>),
    UpstreamContext(Cow<'a, str>),
    Receipt(Cow<'a, str>),
}

fn parts_are_empty(parts: &Parts) -> bool {
    parts.is_empty()
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Vetoed => "vetoed",
            Self::Event => "event",
            Self::Update => "update",
            Self::Note => "note",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        // Only these names are written. JSON of another kind is an error when it is decoded.
        let all = [Self::Message, Self::Vetoed, Self::Event, Self::Note];
        all.into_iter().find(|kind| kind.name() == name).unwrap_or(Self::Update)
    }
}

impl EncodedEntry {
    pub(crate) fn new(entry: &Entry) -> Result<Self, serde_json::Error> {
        let (kind, json) = match entry {
            Entry::Message(message) => {
                let kind = if message.event.is_some() { Kind::Message } else { Kind::Vetoed };
                let event = message.event.as_ref().map(|event| stored_event(event, Cow::Owned(Parts::default())));
                let opens = message.opens.map(Timestamp::as_millis);
                let stored = StoredMessage { message: Cow::Borrowed(&message.message), event, opens };
                (kind, serde_json::to_string(&stored)?)
            }
            Entry::Event(event) => {
                (Kind::Event, serde_json::to_string(&stored_event(event, Cow::Borrowed(&event.parts)))?)
            }
            Entry::Update(update) => (Kind::Update, serde_json::to_string(update.as_ref())?),
            Entry::Note(note) => {
                let stored = match note {
                    Note::Pins(text) => StoredNote::Pins(Cow::Borrowed(text)),
                    Note::UpstreamTask(text) => StoredNote::UpstreamTask(Cow::Borrowed(text)),
                    Note::UpstreamContext(text) => StoredNote::UpstreamContext(Cow::Borrowed(text)),
                    Note::Receipt(text) => StoredNote::Receipt(Cow::Borrowed(text)),
                };
                (Kind::Note, serde_json::to_string(&stored)?)
            }
        };
        Ok(Self { kind, json })
    }
}

fn stored_event<'a>(event: &'a Event, parts: Cow<'a, Parts>) -> StoredEvent<'a> {
    let mut state_delta = event.state_delta.clone();
    state_delta.take_temp();
    StoredEvent {
        id: Cow::Borrowed(&event.id),
        author: Cow::Borrowed(&event.author),
        invocation_id: Cow::Borrowed(&event.invocation_id),
        timestamp: event.timestamp.as_millis(),
        parts,
        state_delta: state_delta.into(),
        error: event
            .error
            .as_ref()
            .map(|error| StoredError { code: Cow::Borrowed(&error.code), message: Cow::Borrowed(&error.message) }),
    }
}

fn read_event(stored: StoredEvent<'_>, parts: Option<&Parts>) -> Arc<Event> {
    Arc::new(Event {
        id: stored.id.into_owned(),
        author: stored.author.into(),
        invocation_id: stored.invocation_id.into(),
        timestamp: Timestamp::from_millis(stored.timestamp),
        parts: parts.cloned().unwrap_or_else(|| stored.parts.into_owned()),
        state_delta: StateDelta::from(stored.state_delta),
        artifacts: BTreeMap::new(),
        error: stored
            .error
            .map(|StoredError { code, message }| EventError { code: code.into_owned(), message: message.into_owned() }),
    })
}

/// Decodes an entry.
pub(crate) fn decode(kind: Kind, json: &str) -> Result<Entry, serde_json::Error> {
    Ok(match kind {
        Kind::Message | Kind::Vetoed => {
            let StoredMessage { message, event, opens } = serde_json::from_str(json)?;
            let message = message.into_owned();
            let event = event.map(|event| read_event(event, Some(&message.parts)));
            Entry::Message(Arc::new(UserMessage { message, event, opens: opens.map(Timestamp::from_millis) }))
        }
        Kind::Event => Entry::Event(read_event(serde_json::from_str(json)?, None)),
        Kind::Update => serde_json::from_str::<StreamResponse>(json)?.into(),
        Kind::Note => Entry::Note(match serde_json::from_str(json)? {
            StoredNote::Pins(text) => Note::Pins(text.into()),
            StoredNote::UpstreamTask(text) => Note::UpstreamTask(text.into()),
            StoredNote::UpstreamContext(text) => Note::UpstreamContext(text.into()),
            StoredNote::Receipt(text) => Note::Receipt(text.into()),
        }),
    })
}

/// A name as JSON without its quotes. The result contains no NUL.
pub(crate) fn encoded_name(name: &str) -> String {
    let json = Json::string(name);
    let text = json.get();
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

pub(crate) fn decode_name(encoded: &str) -> Result<String, serde_json::Error> {
    serde_json::from_str(&format!("\"{encoded}\""))
}
