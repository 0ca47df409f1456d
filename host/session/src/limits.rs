//! Limits on one session, whichever store it is in.

use annex_protocol::Json;

use crate::SessionError;
use crate::event::{Event, parts_size};
use crate::state::{STORED, Scope, StateDelta};

/// The most bytes that a tenant, an agent's name, a user id or an id may have, and a state key or the name of an artifact
/// as JSON. A bound for all stores, because PostgreSQL allows an entry of an index 2,704 bytes.
pub const MAX_KEY_BYTES: usize = 600;

/// Limits on one session. An event that would exceed one is refused, unless the limit says that the oldest goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest size of one scope, in bytes of keys and JSON values. Default: 256 KiB.
    pub state_bytes: usize,
    /// The largest number of keys in one scope. Default: 1,000.
    pub state_keys: usize,
    /// The most levels that arrays and objects may nest in one value. Default: [`Limits::MAX_STATE_DEPTH`], which is also
    /// the most.
    pub state_depth: usize,
    /// The largest number of events. Older events are dropped; their state changes stay. Default: 1,000.
    pub events: usize,
    /// The largest number of artifacts. Beyond the limit the artifact with the oldest write is dropped. Default: 100.
    pub artifacts: usize,
    /// Approximate limit on the size of all artifacts, in bytes. Beyond the limit the artifact with the oldest write is
    /// dropped. A single artifact above the limit is refused. Default: 8 MiB.
    pub artifact_bytes: usize,
    /// True if `null` in a delta removes its key. Default: false, `null` is a value.
    pub null_removes: bool,
}

/// The size of one scope.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeSize {
    /// Bytes of names and values.
    pub(crate) bytes: usize,
    pub(crate) keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            state_bytes: 256 << 10,
            state_keys: 1_000,
            state_depth: Self::MAX_STATE_DEPTH,
            events: 1_000,
            artifacts: 100,
            artifact_bytes: 8 << 20,
            null_removes: false,
        }
    }
}

impl Limits {
    /// Upper bound on the configured depth. An extension that answers with the state wraps a value in up to five
    /// levels, and the whole may nest at most [`Json::MAX_DEPTH`] levels.
    pub const MAX_STATE_DEPTH: usize = Json::MAX_DEPTH - 5;

    /// Checks an event as far as possible without its session.
    pub(crate) fn check_event(&self, event: &Event) -> Result<(), SessionError> {
        check_key("event id", &event.id)?;
        for (name, parts) in &event.artifacts {
            check_escaped("name of an artifact", name)?;
            let bytes = parts_size(parts);
            let limit = self.artifact_bytes;
            if bytes > limit {
                return Err(SessionError::ArtifactTooLarge { name: name.clone(), bytes, limit });
            }
        }
        self.check_delta(&event.state_delta)
    }

    /// Checks the first event of a session, for an event without shared keys.
    pub(crate) fn check_first(&self, event: &Event) -> Result<(), SessionError> {
        self.check_event(event)?;
        let own = event.state_delta.within(Scope::Session).filter(|(_, value)| !self.removes(value));
        let (keys, bytes) =
            own.fold((0, 0), |(keys, bytes), (key, value)| (keys + 1, bytes + key.len() + value.get().len()));
        self.check_scope(Scope::Session, ScopeSize { bytes, keys })
    }

    /// Checks a delta as far as possible without the current state.
    pub(crate) fn check_delta(&self, delta: &StateDelta) -> Result<(), SessionError> {
        for scope in STORED {
            // A delta with more keys than a scope may have is refused before anything is read from a store.
            let keys = delta.within(scope).filter(|(_, value)| !self.removes(value)).count();
            self.check_scope(scope, ScopeSize { bytes: 0, keys })?;
        }
        let most = self.state_depth.min(Self::MAX_STATE_DEPTH);
        for (key, value) in delta.iter() {
            check_escaped("state key", key)?;
            check_seen("state key", key)?;
            if value.nests_deeper_than(most) {
                return Err(SessionError::StateTooDeep { key: key.to_owned(), limit: most });
            }
        }
        Ok(())
    }

    /// Checks a delta and its size without knowing the state.
    pub(crate) fn check_delta_alone(&self, delta: &StateDelta) -> Result<(), SessionError> {
        self.check_delta(delta)?;
        for scope in STORED {
            let set = delta.within(scope).filter(|(_, value)| !self.removes(value));
            let (keys, bytes) =
                set.fold((0, 0), |(keys, bytes), (key, value)| (keys + 1, bytes + key.len() + value.get().len()));
            self.check_scope(scope, ScopeSize { bytes, keys })?;
        }
        Ok(())
    }

    /// True if this value in a delta removes its key.
    pub(crate) fn removes(&self, value: &Json) -> bool {
        self.null_removes && value.is_null()
    }

    /// Checks the size of one scope after a change. A change that makes a scope smaller is never refused, because the
    /// limit may have been lowered.
    pub(crate) fn check_change(&self, scope: Scope, before: ScopeSize, after: ScopeSize) -> Result<(), SessionError> {
        let is_smaller = after.bytes < before.bytes && after.keys <= before.keys;
        if is_smaller { Ok(()) } else { self.check_scope(scope, after) }
    }

    /// Checks the size of one scope.
    pub(crate) fn check_scope(&self, scope: Scope, ScopeSize { bytes, keys }: ScopeSize) -> Result<(), SessionError> {
        if keys > self.state_keys {
            return Err(SessionError::TooManyStateKeys { scope, keys, limit: self.state_keys });
        }
        if bytes > self.state_bytes {
            return Err(SessionError::StateTooLarge { scope, bytes, limit: self.state_bytes });
        }
        Ok(())
    }
}

/// Checks a text that things are found by. PostgreSQL has no NUL in texts.
pub(crate) fn check_key(field: &'static str, text: &str) -> Result<(), SessionError> {
    if text.len() > MAX_KEY_BYTES || text.contains('\0') {
        Err(SessionError::InvalidKey { field, limit: MAX_KEY_BYTES })
    } else {
        Ok(())
    }
}

/// Checks a state key or the name of an artifact. Both are stored as JSON, which has an escape for NUL.
fn check_escaped(field: &'static str, text: &str) -> Result<(), SessionError> {
    // An escape is six bytes at most.
    if text.len().saturating_mul(6) < MAX_KEY_BYTES { Ok(()) } else { check_key(field, Json::string(text).get()) }
}

/// State keys are read by people and fill the agent's instruction, and extensions and clients name them without a grant.
fn check_seen(field: &'static str, text: &str) -> Result<(), SessionError> {
    if text.contains(annex_text::steers) {
        Err(SessionError::UnseenCharacters { field, text: text.to_owned() })
    } else {
        Ok(())
    }
}
