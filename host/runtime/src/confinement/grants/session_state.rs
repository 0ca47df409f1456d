//! The grant `session-state` and the scopes of session state.

/// State scopes by key prefix, as in ADK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateScope {
    /// No prefix: this conversation.
    Session,
    /// `user:`, every conversation of the user.
    User,
    /// `app:`, every conversation of the agent.
    App,
    /// `temp:`, this turn only.
    Temp,
}

impl StateScope {
    /// The scope that `key` belongs to.
    #[must_use]
    pub fn of(key: &str) -> Self {
        // Only the first prefix counts, and in lower case: `User:name` and `foo:bar` are keys of the session.
        match key.split_once(':') {
            Some(("user", _)) => Self::User,
            Some(("app", _)) => Self::App,
            Some(("temp", _)) => Self::Temp,
            _ => Self::Session,
        }
    }

    /// The name in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
            Self::App => "app",
            Self::Temp => "temp",
        }
    }
}

/// The grant `session-state`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStateGrant {
    /// The session-scope keys that the extension can see; `None` shows all of them.
    pub keys: Option<Vec<String>>,
    /// Scopes besides `session` that its deltas may write.
    pub scopes: Vec<StateScope>,
    /// The keys, with their prefixes, that its deltas may write; `None` leaves it at the scopes.
    pub write_keys: Option<Vec<String>>,
}

impl SessionStateGrant {
    pub(super) fn shows(&self, key: &str) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.iter().any(|shown| shown == key))
    }

    pub(super) fn lets_write(&self, key: &str) -> bool {
        self.write_keys.as_ref().is_none_or(|keys| keys.iter().any(|writable| writable == key))
    }
}
