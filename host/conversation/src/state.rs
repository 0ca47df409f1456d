//! The state of conversations: scopes, changes, and the view of one conversation.
//!
//! Values are JSON text that stays unparsed, so numbers and the order of keys do not change.

use std::collections::BTreeSet;
use std::fmt;

use annex_protocol::{Json, JsonObject};

/// The scope of a state key: who shares it, and how long it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A key of one conversation. It has no known prefix. An unknown prefix is part of the name.
    Conversation,
    /// A key with the prefix `user:`. All conversations of one user with one agent share it.
    User,
    /// A key with the prefix `app:`. All conversations of one agent in one tenant share it.
    App,
    /// A key with the prefix `temp:`. It is visible until the turn ends, and is never stored.
    Temp,
}

/// The scopes that are stored, in the order in which they are used and changed.
pub(crate) const STORED: [Scope; 3] = [Scope::Conversation, Scope::User, Scope::App];

impl Scope {
    /// Splits a full key into its scope and the name within it. Only the first prefix counts and case matters: `app:app:x`
    /// is `app:x` in the app scope, `App:x` is a key of the conversation.
    ///
    /// ```
    /// use annex_conversation::Scope;
    ///
    /// assert_eq!(Scope::of("user:theme"), (Scope::User, "theme"));
    /// assert_eq!(Scope::of("other:theme"), (Scope::Conversation, "other:theme"));
    /// ```
    pub fn of(key: &str) -> (Self, &str) {
        [Self::User, Self::App, Self::Temp]
            .into_iter()
            .find_map(|scope| Some((scope, key.strip_prefix(scope.prefix())?)))
            .unwrap_or((Self::Conversation, key))
    }

    /// The prefix of the full keys of this scope; empty for [`Scope::Conversation`].
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Conversation => "",
            Self::User => "user:",
            Self::App => "app:",
            Self::Temp => "temp:",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Conversation => "conversation",
            Self::User => "user",
            Self::App => "app",
            Self::Temp => "temp",
        })
    }
}

/// A change of state: full keys and their new values, in order.
///
/// Each value replaces the previous value as a whole. `null` is a value, unless
/// [`Limits::null_removes`](crate::Limits::null_removes) makes `null` remove its key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateDelta(JsonObject);

impl StateDelta {
    /// An empty delta.
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

    /// The new value of a full key; `None` if the delta does not contain the key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)
    }

    /// The full keys and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter()
    }

    /// Adds the keys of `other`. A key that both have gets the value of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The scopes of the keys in the delta.
    pub fn scopes(&self) -> BTreeSet<Scope> {
        self.iter().map(|(key, _)| Scope::of(key).0).collect()
    }

    /// The names without their prefix, and the values, of the keys in `scope`.
    pub(crate) fn within(&self, scope: Scope) -> impl Iterator<Item = (&str, &Json)> {
        self.iter().filter_map(move |(key, value)| {
            let (found, name) = Scope::of(key);
            (found == scope).then_some((name, value))
        })
    }

    pub(crate) fn touches(&self, scope: Scope) -> bool {
        self.within(scope).next().is_some()
    }

    pub(crate) fn has_temp(&self) -> bool {
        self.touches(Scope::Temp)
    }

    /// Removes the `temp:` keys and returns them with their prefix.
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

/// The stored keys that a conversation sees, by scope. Clones share the keys until one clone is changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopedState {
    pub(crate) own: JsonObject,
    pub(crate) user: JsonObject,
    pub(crate) app: JsonObject,
}

impl ScopedState {
    /// The conversation's own keys.
    pub fn own(&self) -> &JsonObject {
        &self.own
    }

    /// The value of a full key. `None` for `temp:` keys, which are not stored, and for missing keys.
    pub fn value(&self, full_key: &str) -> Option<&Json> {
        let (scope, name) = Scope::of(full_key);
        self.of(scope)?.get(name)
    }

    /// All keys: the conversation's own, then `app:` and `user:` keys with their prefixes.
    pub fn merged(&self) -> JsonObject {
        let mut merged = JsonObject::clone(&self.own);
        merged.extend(self.shared());
        merged
    }

    /// The shared keys: `app:` and `user:` keys with their prefixes.
    pub fn shared(&self) -> JsonObject {
        let scopes = [(Scope::App, &self.app), (Scope::User, &self.user)];
        let full = |(scope, state): (Scope, &JsonObject)| {
            let keys = state.iter().map(|(name, value)| (format!("{}{name}", scope.prefix()), value.clone()));
            keys.collect::<Vec<_>>()
        };
        scopes.into_iter().flat_map(full).collect()
    }

    /// Sets and removes the keys of a delta, without its `temp:` keys.
    pub(crate) fn apply(&mut self, delta: StateDelta, null_removes: bool) {
        let is_whole =
            |(key, value): (&str, &Json)| Scope::of(key).0 == Scope::Conversation && !(null_removes && value.is_null());
        if self.own.is_empty() && delta.iter().all(is_whole) {
            self.own = delta.into();
            return;
        }
        for (key, value) in JsonObject::from(delta) {
            let (scope, name) = Scope::of(&key);
            if let Some(state) = self.of_mut(scope) {
                // The first change copies the map if others share it, such as the table in memory or another turn.
                set(state, name, value, null_removes);
            }
        }
    }

    fn of(&self, scope: Scope) -> Option<&JsonObject> {
        match scope {
            Scope::Conversation => Some(&self.own),
            Scope::User => Some(&self.user),
            Scope::App => Some(&self.app),
            Scope::Temp => None,
        }
    }

    pub(crate) fn of_mut(&mut self, scope: Scope) -> Option<&mut JsonObject> {
        match scope {
            Scope::Conversation => Some(&mut self.own),
            Scope::User => Some(&mut self.user),
            Scope::App => Some(&mut self.app),
            Scope::Temp => None,
        }
    }
}

/// Sets one key of a scope, or removes it.
pub(crate) fn set(state: &mut JsonObject, name: &str, value: Json, null_removes: bool) {
    if null_removes && value.is_null() {
        state.remove(name);
    } else {
        state.insert(name.to_owned(), value);
    }
}
