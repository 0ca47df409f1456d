//! State and its scopes. Values are JSON text that is never read here, so numbers and key order stay as they came.

use std::collections::BTreeSet;
use std::fmt;

use annex_protocol::{Json, JsonObject};
use serde::{Deserialize, Serialize};

/// The state of one scope, or the merged view of several; each doc comment says which.
pub type State = JsonObject;

/// The scope of a state key: who shares it, and how long it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// No known prefix: this session only. An unknown prefix is part of the name.
    Session,
    /// `user:`, shared by all sessions of one user with one agent.
    User,
    /// `app:`, shared by all sessions of one agent in one tenant.
    App,
    /// `temp:`, visible until the turn ends, never stored.
    Temp,
}

/// The scopes that are stored, in the order in which they are used and changed.
pub(crate) const STORED: [Scope; 3] = [Scope::Session, Scope::User, Scope::App];

impl Scope {
    /// Splits a full key into its scope and the name within it. Only the first prefix counts and case matters:
    /// `app:app:x` is `app:x` in the app scope, `App:x` is a session key.
    ///
    /// ```
    /// use annex_session::Scope;
    ///
    /// assert_eq!(Scope::of("user:theme"), (Scope::User, "theme"));
    /// assert_eq!(Scope::of("other:theme"), (Scope::Session, "other:theme"));
    /// ```
    pub fn of(key: &str) -> (Self, &str) {
        [Self::User, Self::App, Self::Temp]
            .into_iter()
            .find_map(|scope| Some((scope, key.strip_prefix(scope.prefix())?)))
            .unwrap_or((Self::Session, key))
    }

    /// The prefix of its full keys, empty for [`Scope::Session`].
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Session => "",
            Self::User => "user:",
            Self::App => "app:",
            Self::Temp => "temp:",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Session => "session",
            Self::User => "user",
            Self::App => "app",
            Self::Temp => "temp",
        })
    }
}

/// A change to state: full keys to new values, in the order in which they were set.
///
/// The change is shallow: each value replaces the previous value as a whole. `null` is a value, except with
/// [`Limits::null_removes`](crate::Limits::null_removes), where `null` removes its key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateDelta(JsonObject);

impl StateDelta {
    /// A delta that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a JSON object.
    ///
    /// # Errors
    /// The text is not one JSON object, or names a key twice.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        JsonObject::parse(text).map(Self)
    }

    /// True if the delta changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one full key.
    pub fn insert(&mut self, key: impl Into<String>, value: Json) {
        self.0.insert(key.into(), value);
    }

    /// The new value of one full key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)
    }

    /// The full keys and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter()
    }

    /// Adds the keys of `other`, which win over those of `self`.
    pub fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// The scopes of the keys in the delta.
    pub fn scopes(&self) -> BTreeSet<Scope> {
        self.iter().map(|(key, _)| Scope::of(key).0).collect()
    }

    /// Names within `scope` and their values.
    pub(crate) fn within(&self, scope: Scope) -> impl Iterator<Item = (&str, &Json)> {
        self.iter().filter_map(move |(key, value)| {
            let (found, name) = Scope::of(key);
            (found == scope).then_some((name, value))
        })
    }

    pub(crate) fn touches(&self, scope: Scope) -> bool {
        self.within(scope).next().is_some()
    }

    /// Takes the `temp:` keys out; they come back with their full keys.
    pub(crate) fn take_temp(&mut self) -> Self {
        // Nearly no delta has `temp:` keys, and without them nothing is rebuilt.
        if !self.touches(Scope::Temp) {
            return Self::default();
        }
        let is_temp = |(key, _): &(String, Json)| Scope::of(key).0 == Scope::Temp;
        let (temp, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0).into_iter().partition(is_temp);
        self.0 = kept.into_iter().collect();
        Self(temp.into_iter().collect())
    }
}

impl From<JsonObject> for StateDelta {
    fn from(object: JsonObject) -> Self {
        Self(object)
    }
}

impl From<StateDelta> for JsonObject {
    fn from(delta: StateDelta) -> Self {
        delta.0
    }
}

impl FromIterator<(String, Json)> for StateDelta {
    fn from_iter<T: IntoIterator<Item = (String, Json)>>(pairs: T) -> Self {
        Self(pairs.into_iter().collect())
    }
}
