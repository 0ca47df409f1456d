//! The stored form of events and names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use annex_database::Value;
use annex_protocol::{Json, Parts, Timestamp};
use serde::{Deserialize, Serialize};

use crate::SessionError;
use crate::event::{Event, EventError, parts_size};
use crate::state::StateDelta;

fn parts_are_empty(parts: &Parts) -> bool {
    parts.is_empty()
}

/// The JSON of an event. Empty members are omitted.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredEvent<'a> {
    id: String,
    author: Cow<'a, str>,
    invocation_id: Cow<'a, str>,
    /// Milliseconds since 1970-01-01T00:00:00Z.
    timestamp: i64,
    #[serde(default, skip_serializing_if = "parts_are_empty")]
    parts: Parts,
    #[serde(default, skip_serializing_if = "StateDelta::is_empty")]
    state_delta: StateDelta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<StoredError>,
}

#[derive(Serialize, Deserialize)]
struct StoredError {
    code: String,
    message: String,
}

/// An event to store: its JSON, and the parts that have columns or rows of their own.
pub(super) struct EncodedEvent {
    pub(super) id: String,
    pub(super) timestamp: Timestamp,
    pub(super) json: String,
    pub(super) state_delta: StateDelta,
    pub(super) artifacts: Vec<EncodedArtifact>,
}

pub(super) struct EncodedArtifact {
    /// Encoded by [`encoded_name`].
    pub(super) name: String,
    pub(super) parts: String,
    pub(super) size: usize,
}

impl EncodedEvent {
    /// From a whole event without `temp:` keys.
    pub(super) fn new(event: Event) -> Result<Self, SessionError> {
        let Event { id, author, invocation_id, timestamp, parts, state_delta, artifacts, error, partial: _ } = event;
        let encode = |(name, parts): (String, Parts)| {
            let name = encoded_name(&name);
            let size = parts_size(&parts);
            Ok(EncodedArtifact { name, parts: serde_json::to_string(&parts)?, size })
        };
        let artifacts = artifacts.into_iter().map(encode).collect::<Result<_, SessionError>>()?;
        let error = error.map(|EventError { code, message }| StoredError { code, message });
        let author = Cow::Borrowed(&*author);
        let invocation_id = Cow::Borrowed(&*invocation_id);
        let stored =
            StoredEvent { id, author, invocation_id, timestamp: timestamp.as_millis(), parts, state_delta, error };
        // A retry is recognised by this text: an event that is sent again must encode to the same bytes. A field that
        // is added to the form has to be left out where it is empty.
        let json = serde_json::to_string(&stored)?;
        Ok(Self { id: stored.id, timestamp, json, state_delta: stored.state_delta, artifacts })
    }

    pub(super) fn happened_at(&self) -> Value<'static> {
        Value::Int(self.timestamp.as_millis())
    }
}

pub(super) fn decode_event(json: &str) -> Result<Arc<Event>, serde_json::Error> {
    let stored: StoredEvent<'_> = serde_json::from_str(json)?;
    Ok(Arc::new(Event {
        id: stored.id,
        author: stored.author.into(),
        invocation_id: stored.invocation_id.into(),
        timestamp: Timestamp::from_millis(stored.timestamp),
        parts: stored.parts,
        state_delta: stored.state_delta,
        artifacts: BTreeMap::new(),
        error: stored.error.map(|StoredError { code, message }| EventError { code, message }),
        partial: false,
    }))
}

/// A name as JSON without its quotes, which has no NUL.
pub(super) fn encoded_name(name: &str) -> String {
    let json = Json::string(name);
    let text = json.get();
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

pub(super) fn decode_name(encoded: &str) -> Result<String, serde_json::Error> {
    serde_json::from_str(&format!("\"{encoded}\""))
}
