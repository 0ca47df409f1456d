//! Answers about sessions. Times are in RFC 3339.

use annex_protocol::{JsonObject, Parts};
use serde::{Deserialize, Serialize};

/// A list of sessions. The session that was unchanged for the longest time is the first.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The sessions of this page.
    pub sessions: Vec<SessionSummary<Text>>,
    /// The token for the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Text>,
}

/// One session in a list.
#[derive(Debug, Deserialize, Serialize)]
pub struct SessionSummary<Text = String> {
    /// The A2A context.
    pub context: Text,
    /// The user of the session.
    pub user: Text,
    /// The number of the session's events so far.
    pub revision: u64,
    /// The time of the session's last event.
    pub last_update: Text,
    /// The keys of the session's own state, without `user:` and `app:` keys.
    pub keys: Vec<Text>,
}

/// One session with its state.
#[derive(Debug, Deserialize, Serialize)]
pub struct Session<Text = String> {
    /// The A2A context.
    pub context: Text,
    /// The user of the session.
    pub user: Text,
    /// The name of the agent.
    pub agent: Text,
    /// The tenant of the session. Absent for the agent of the config itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Text>,
    /// The number of the session's events so far.
    pub revision: u64,
    /// The time of the session's last event.
    pub last_update: Text,
    /// The whole state. Shared keys have the prefix `user:` or `app:`.
    pub state: JsonObject,
}

/// The events of one session.
#[derive(Debug, Deserialize, Serialize)]
#[serde(bound(deserialize = "Text: Deserialize<'de> + Default"))]
pub struct Events<Text = String> {
    /// The events in the order in which they were stored.
    pub events: Vec<Event<Text>>,
}

/// One event of a session.
#[derive(Debug, Deserialize, Serialize)]
pub struct Event<Text = String> {
    /// The id of the event.
    #[serde(default)]
    pub id: Text,
    /// The author: the user or the agent.
    pub author: Text,
    /// The task of the turn that stored the event.
    pub task: Text,
    /// The time of the event.
    pub timestamp: Text,
    /// The parts of the message or answer.
    pub parts: Parts,
    /// The state changes of the event.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub state_delta: JsonObject,
    /// The reason why the agent gave no answer. Absent after an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<EventError<Text>>,
}

/// The reason why an agent gave no answer.
#[derive(Debug, Deserialize, Serialize)]
pub struct EventError<Text = String> {
    /// The reason for programs.
    pub code: Text,
    /// The reason for people.
    pub message: Text,
}

/// The state that sessions share.
#[derive(Debug, Deserialize, Serialize)]
pub struct SharedState<Text = String> {
    /// The name of the agent.
    pub agent: Text,
    /// The user of the `user:` keys. Absent if the request named no user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Text>,
    /// The `app:` and `user:` keys with their values.
    pub state: JsonObject,
}

/// State keys to delete.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeysToDelete {
    /// The full keys, with their prefixes.
    pub keys: Vec<String>,
    /// The user of the `user:` keys and of the session. Absent: the anonymous user of the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The A2A context of the keys without a prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// The outcome of deleting state keys.
#[derive(Debug, Deserialize, Serialize)]
pub struct DeletedKeys<Text = String> {
    /// The keys that were deleted.
    pub deleted: Vec<Text>,
    /// The keys that did not exist.
    pub missing: Vec<Text>,
}

/// A user whose `user:` state was deleted.
#[derive(Debug, Deserialize, Serialize)]
pub struct DeletedUserState<Text = String> {
    /// The name of the user.
    pub user: Text,
    /// The number of keys that were deleted.
    pub keys: u64,
}

/// A deleted session.
#[derive(Debug, Deserialize, Serialize)]
pub struct DeletedSession<Text = String> {
    /// The A2A context.
    pub deleted: Text,
    /// The user of the session.
    pub user: Text,
}
