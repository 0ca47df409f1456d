//! Access to the state of a conversation for a tool or a callback.

use annex_conversation::{AppendError, Conversation, StateDelta};
use annex_protocol::{Json, JsonObject};

/// The state of a conversation, with changes that are not stored yet. A tool or a callback makes the changes. They are stored
/// together with the event of that tool or callback. If one change cannot be stored, none is stored.
#[derive(Clone)]
pub struct StateAccess {
    conversation: Conversation,
    changes: StateDelta,
}

impl StateAccess {
    /// Gives access to the state of `conversation`. No changes are made yet.
    pub fn new(conversation: Conversation) -> Self {
        Self { conversation, changes: StateDelta::new() }
    }

    /// The value of a full key, such as `user:name`; `None` if the key has no value.
    pub fn get(&self, key: &str) -> Option<Json> {
        self.changes.get(key).cloned().or_else(|| self.conversation.value(key))
    }

    /// Sets a value by its full key. `temp:` keys last until the end of the turn.
    pub fn set(&mut self, key: impl Into<String>, value: Json) {
        self.changes.insert(key, value);
    }

    /// Applies all changes, or none if the conversation would not accept them. Storing such changes later would fail
    /// the task.
    pub(crate) fn set_all(&mut self, changes: StateDelta) -> Result<(), AppendError> {
        self.conversation.check(&changes)?;
        self.changes.merge(changes);
        Ok(())
    }

    /// All readable keys with their values.
    pub fn all(&self) -> JsonObject {
        let mut state = self.conversation.state();
        // The changes come last, so that their holder reads its own changes before they are stored.
        state.extend(JsonObject::from(self.changes.clone()));
        state
    }

    /// The changes that are not stored yet.
    pub fn changes(&self) -> &StateDelta {
        &self.changes
    }

    pub(crate) fn into_changes(self) -> StateDelta {
        self.changes
    }
}
