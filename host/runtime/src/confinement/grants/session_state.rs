//! The grant `session-state` and the scopes of session state.

/// Scopes of session state, by key prefix as in ADK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateScope {
    /// No prefix: keys of this conversation.
    Session,
    /// `user:`: keys shared by all conversations of the user.
    User,
    /// `app:`: keys shared by all conversations of the agent.
    App,
    /// `temp:`: keys of this turn only.
    Temp,
}

impl StateScope {
    /// The scope of a key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        // Only the first prefix counts, in lower case: `User:name` and `foo:bar` are keys of session scope.
        match key.split_once(':') {
            Some(("user", _)) => Self::User,
            Some(("app", _)) => Self::App,
            Some(("temp", _)) => Self::Temp,
            _ => Self::Session,
        }
    }

    /// Name in the config.
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

/// The grant `session-state`: the state that an extension may read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStateGrant {
    /// Session-scope keys that the extension may read; `None` allows all.
    pub keys: Option<Vec<String>>,
    /// Scopes other than `session` that deltas may write.
    pub scopes: Vec<StateScope>,
    /// Keys, with their prefixes, that deltas may write; `None` allows all keys of the allowed scopes.
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
