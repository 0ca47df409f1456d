//! Access to the state of a conversation for a tool or a callback.

use annex_conversation::{AppendError, Conversation, StateDelta};
use annex_protocol::{Json, JsonObject};

/// The state of a conversation together with the changes by the holder of this value. Either all changes are stored
/// with the holder's event, or none.
#[derive(Clone)]
pub struct StateAccess {
    conversation: Conversation,
    changes: StateDelta,
}

impl StateAccess {
    /// Gives access to the state of `conversation`, without changes so far.
    pub fn new(conversation: Conversation) -> Self {
        Self { conversation, changes: StateDelta::new() }
    }

    /// One value by its full key, such as `user:name`.
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

    /// The changes so far.
    pub fn changes(&self) -> &StateDelta {
        &self.changes
    }

    pub(crate) fn into_changes(self) -> StateDelta {
        self.changes
    }
}
