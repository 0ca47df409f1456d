//! Answers about sessions. Times are in RFC 3339.

use annex_protocol::{JsonObject, Parts};
use serde::{Deserialize, Serialize};

/// Sessions, the longest unchanged first.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The sessions.
    pub sessions: Vec<Listed<Text>>,
    /// The place at which the list goes on; absent at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Text>,
}

/// One session in a list.
#[derive(Debug, Deserialize, Serialize)]
pub struct Listed<Text = String> {
    /// The A2A context.
    pub context: Text,
    /// The user that the session belongs to.
    pub user: Text,
    /// Counts its events.
    pub revision: u64,
    /// The time of its last event.
    pub last_update: Text,
    /// The keys of its state, without those that it shares.
    pub keys: Vec<Text>,
}

/// One session.
#[derive(Debug, Deserialize, Serialize)]
pub struct Session<Text = String> {
    /// The A2A context.
    pub context: Text,
    /// The user that the session belongs to.
    pub user: Text,
    /// The agent.
    pub agent: Text,
    /// The tenant; absent for the agent of the config itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Text>,
    /// Counts its events.
    pub revision: u64,
    /// The time of its last event.
    pub last_update: Text,
    /// All keys, those that it shares with their prefixes.
    pub state: JsonObject,
}

/// Events, in the order in which they were stored.
#[derive(Debug, Deserialize, Serialize)]
#[serde(bound(deserialize = "Text: Deserialize<'de> + Default"))]
pub struct Events<Text = String> {
    /// The events.
    pub events: Vec<Event<Text>>,
}

/// One event.
#[derive(Debug, Deserialize, Serialize)]
pub struct Event<Text = String> {
    /// Its id.
    #[serde(default)]
    pub id: Text,
    /// The user or the agent.
    pub author: Text,
    /// The turn, which is its task.
    pub task: Text,
    /// The time of the event.
    pub timestamp: Text,
    /// The content.
    pub parts: Parts,
    /// The changes of the session's state.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub state_delta: JsonObject,
    /// The reason for which the agent has no answer; absent where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<EventError<Text>>,
}

/// The reason for which an agent has no answer.
#[derive(Debug, Deserialize, Serialize)]
pub struct EventError<Text = String> {
    /// The reason for programs.
    pub code: Text,
    /// The reason for people.
    pub message: Text,
}

/// The state that sessions share.
#[derive(Debug, Deserialize, Serialize)]
pub struct Shared<Text = String> {
    /// The agent.
    pub agent: Text,
    /// The user whose `user:` keys are among the state; absent where none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Text>,
    /// `app:` and `user:` keys.
    pub state: JsonObject,
}

/// State keys to delete.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeysToDelete {
    /// The full keys, with the prefixes of their scopes.
    pub keys: Vec<String>,
    /// The user to whom `user:` keys belong, and the session. Absent: the anonymous user of the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The A2A context to which keys without a prefix belong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// State keys that are there no more.
#[derive(Debug, Deserialize, Serialize)]
pub struct DeletedKeys<Text = String> {
    /// The keys that were deleted.
    pub deleted: Vec<Text>,
    /// The keys that were not there.
    pub missing: Vec<Text>,
}

/// A user without `user:` state.
#[derive(Debug, Deserialize, Serialize)]
pub struct DeletedUserState<Text = String> {
    /// The user.
    pub user: Text,
    /// The number of keys that were deleted.
    pub keys: u64,
}

/// A session that is there no more.
#[derive(Debug, Deserialize, Serialize)]
pub struct Deleted<Text = String> {
    /// The A2A context.
    pub deleted: Text,
    /// The user that the session belonged to.
    pub user: Text,
}
