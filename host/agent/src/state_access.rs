//! Access to the session's state for a tool or a callback.

use annex_protocol::Json;
use annex_session::{SessionError, State, StateDelta, TurnSession};

/// The state of the session with the holder's own changes. All changes are stored with the holder's event, or none.
#[derive(Clone)]
pub struct StateAccess {
    session: TurnSession,
    changes: StateDelta,
}

impl StateAccess {
    /// The session's state, unchanged.
    pub fn new(session: TurnSession) -> Self {
        Self { session, changes: StateDelta::new() }
    }

    /// One value by its full key, such as `user:name`.
    pub fn get(&self, key: &str) -> Option<Json> {
        self.changes.get(key).cloned().or_else(|| self.session.value(key))
    }

    /// Sets a value by its full key. `temp:` keys last until the end of the turn.
    pub fn set(&mut self, key: impl Into<String>, value: Json) {
        self.changes.insert(key, value);
    }

    /// Applies all changes or none. Changes that no session accepts would fail the task.
    pub(crate) fn set_all(&mut self, changes: StateDelta) -> Result<(), SessionError> {
        self.session.check(&changes)?;
        self.changes.merge(changes);
        Ok(())
    }

    /// All readable keys with their values.
    pub fn all(&self) -> State {
        let mut state = self.session.state();
        // The changes come last, so that their holder reads its own changes before they are stored.
        state.extend(State::from(self.changes.clone()));
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
