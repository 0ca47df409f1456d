//! The stored state of one session, with the shared keys.

use annex_protocol::Json;

use crate::limits::Limits;
use crate::state::{Scope, State, StateDelta};

/// The stored keys that a session sees, by scope. Clones share them until one is changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionState {
    pub(crate) session: State,
    pub(crate) user: State,
    pub(crate) app: State,
}

impl SessionState {
    /// The session's own keys.
    pub fn own(&self) -> &State {
        &self.session
    }

    /// One value by its full key. `temp:` keys are not stored.
    pub fn value(&self, full_key: &str) -> Option<&Json> {
        let (scope, name) = Scope::of(full_key);
        self.of(scope)?.get(name)
    }

    /// All keys: those of the session, then `app:` and `user:` keys with their prefixes.
    pub fn merged(&self) -> State {
        let mut merged = State::clone(&self.session);
        merged.extend(self.shared());
        merged
    }

    /// The keys shared with other sessions: `app:` and `user:` keys with their prefixes.
    pub fn shared(&self) -> State {
        let scopes = [(Scope::App, &self.app), (Scope::User, &self.user)];
        let full = |(scope, state): (Scope, &State)| {
            let keys = state.iter().map(|(name, value)| (format!("{}{name}", scope.prefix()), value.clone()));
            keys.collect::<Vec<_>>()
        };
        scopes.into_iter().flat_map(full).collect()
    }

    /// Sets and removes the keys of a delta. `temp:` keys are ignored.
    pub(crate) fn apply(&mut self, delta: StateDelta, limits: &Limits) {
        let is_whole = |(key, value): (&str, &Json)| Scope::of(key).0 == Scope::Session && !limits.removes(value);
        if self.session.is_empty() && delta.iter().all(is_whole) {
            self.session = delta.into();
            return;
        }
        for (key, value) in State::from(delta) {
            let (scope, name) = Scope::of(&key);
            if let Some(state) = self.of_mut(scope) {
                // The first change copies the map if others share it, such as the table in memory or another turn.
                set(state, name, value, limits);
            }
        }
    }

    fn of(&self, scope: Scope) -> Option<&State> {
        match scope {
            Scope::Session => Some(&self.session),
            Scope::User => Some(&self.user),
            Scope::App => Some(&self.app),
            Scope::Temp => None,
        }
    }

    pub(crate) fn of_mut(&mut self, scope: Scope) -> Option<&mut State> {
        match scope {
            Scope::Session => Some(&mut self.session),
            Scope::User => Some(&mut self.user),
            Scope::App => Some(&mut self.app),
            Scope::Temp => None,
        }
    }
}

/// Sets one key of a scope, or removes it.
pub(crate) fn set(state: &mut State, name: &str, value: Json, limits: &Limits) {
    if limits.removes(&value) {
        state.remove(name);
    } else {
        state.insert(name.to_owned(), value);
    }
}
