//! What the operator lets one installed extension do. Deny by default.
//!
//! An import is either free (it can neither observe nor affect anything outside of its own turn) or needs a grant; the
//! table in [`GrantNeeded::of_import`] is the only place that says which.

use std::fmt;

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

/// The grants of one installed extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// `wasi:clocks`.
    pub clock: bool,
    /// `wasi:random`.
    pub random: bool,
    /// Reading the session; `None` refuses it.
    pub session_state: Option<SessionStateGrant>,
}

/// The grant `session-state`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStateGrant {
    /// The session-scope keys that the extension can see; `None` shows all of them.
    pub keys: Option<Vec<String>>,
    /// Scopes besides `session` that its deltas may write.
    pub scopes: Vec<StateScope>,
}

impl Grants {
    /// Whether a delta may write `scope`. Session scope needs no grant: validating what the client sent is what the
    /// state hook is for.
    #[must_use]
    pub fn may_write(&self, scope: StateScope) -> bool {
        scope == StateScope::Session || self.session_state.as_ref().is_some_and(|grant| grant.scopes.contains(&scope))
    }

    /// Whether the extension may see the session-scope key.
    #[must_use]
    pub fn may_read(&self, key: &str) -> bool {
        let Some(grant) = &self.session_state else { return false };
        StateScope::of(key) == StateScope::Session
            && grant.keys.as_ref().is_none_or(|keys| keys.iter().any(|shown| shown == key))
    }

    pub(crate) fn allow(&self, grant: GrantNeeded) -> bool {
        match grant {
            GrantNeeded::Clock => self.clock,
            GrantNeeded::Random => self.random,
            GrantNeeded::SessionState => self.session_state.is_some(),
            GrantNeeded::Scope(scope) => self.may_write(scope),
        }
    }
}

/// A grant that a component cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantNeeded {
    /// The time of day and timers.
    Clock,
    /// Random numbers.
    Random,
    /// Reading session state.
    SessionState,
    /// Writing another scope than the session's.
    Scope(StateScope),
}

impl GrantNeeded {
    /// What importing `interface` (`package:name/interface`, no version) takes: `None` when the host has no such
    /// interface, `Some(None)` when it is free.
    #[must_use]
    pub fn of_import(interface: &str) -> Option<Option<Self>> {
        let (package, _) = interface.split_once('/')?;
        match (package, interface) {
            ("wasi:clocks", _) => Some(Some(Self::Clock)),
            ("wasi:random", _) => Some(Some(Self::Random)),
            // A WASI context with nothing in it: no files, no environment, no network.
            ("wasi:io" | "wasi:cli" | "wasi:filesystem" | "wasi:sockets", _) => Some(None),
            (_, "wasi:logging/logging" | "wasi:config/store") => Some(None),
            (_, "annex:extension/types" | "annex:extension/json-schema") => Some(None),
            (_, "annex:extension/session-state") => Some(Some(Self::SessionState)),
            _ => None,
        }
    }

    /// Reads the name that a descriptor uses for a grant.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "clock" => Self::Clock,
            "random" => Self::Random,
            "session-state" => Self::SessionState,
            "session-state.scopes.user" => Self::Scope(StateScope::User),
            "session-state.scopes.app" => Self::Scope(StateScope::App),
            "session-state.scopes.temp" => Self::Scope(StateScope::Temp),
            _ => return None,
        })
    }
}

/// The grant as a line for the config's `[extension.grants]` table.
impl fmt::Display for GrantNeeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clock => formatter.write_str("clock = true"),
            Self::Random => formatter.write_str("random = true"),
            Self::SessionState => formatter.write_str("session-state = { read = true }"),
            Self::Scope(scope) => {
                write!(formatter, "session-state = {{ read = true, scopes = [\"{}\"] }}", scope.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Grants, SessionStateGrant, StateScope};

    #[test]
    fn scopes_follow_the_first_prefix_and_its_case() {
        let expected = [
            ("name", StateScope::Session),
            ("user:name", StateScope::User),
            ("app:", StateScope::App),
            ("temp:a:b", StateScope::Temp),
            ("User:name", StateScope::Session),
            ("foo:bar", StateScope::Session),
            ("app:app:z", StateScope::App),
        ];
        for (key, scope) in expected {
            assert_eq!(StateScope::of(key), scope, "{key}");
        }
    }

    #[test]
    fn nothing_is_granted_unless_the_operator_says_so() {
        let none = Grants::default();
        assert!(!none.may_read("name"));
        assert!(none.may_write(StateScope::Session));
        assert!(!none.may_write(StateScope::App));
    }

    #[test]
    fn a_key_list_narrows_what_is_shown_and_never_widens_it_to_other_scopes() {
        let grant = SessionStateGrant { keys: Some(vec!["name".into(), "app:secret".into()]), scopes: vec![] };
        let grants = Grants { session_state: Some(grant), ..Grants::default() };
        assert!(grants.may_read("name"));
        assert!(!grants.may_read("email"));
        assert!(!grants.may_read("app:secret"));
    }
}
