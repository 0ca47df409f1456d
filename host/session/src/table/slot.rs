//! The content of a slot, and its size.

use annex_protocol::{Json, Timestamp};

use super::slot_key::SlotKey;
use crate::artifacts::Artifacts;
use crate::event_log::EventLog;
use crate::limits::Limits;
use crate::state::{Scope, State, StateDelta};

/// One session, or one shared map, which has no events.
pub(crate) struct Slot {
    key_bytes: usize,
    /// Shared with readers, by reference counting.
    pub(super) state: State,
    pub(super) state_bytes: usize,
    pub(super) revision: u64,
    pub(super) last_update: Timestamp,
    /// The time of the last change by the clock of this process.
    pub(super) changed_at: Timestamp,
    pub(super) events: EventLog,
    pub(super) artifacts: Artifacts,
}

impl Slot {
    /// A flat charge for a slot and its place in the list.
    const OVERHEAD: usize = 512;

    pub(super) fn new(key: &SlotKey) -> Self {
        Self {
            key_bytes: key.name.bytes(),
            state: State::new(),
            state_bytes: 0,
            revision: 0,
            last_update: Timestamp::now(),
            changed_at: Timestamp::now(),
            events: EventLog::default(),
            artifacts: Artifacts::default(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        Self::OVERHEAD + self.key_bytes + self.state_bytes + self.events.bytes() + self.artifacts.bytes()
    }

    /// Sets and removes keys. The revision counts each call, also a call without a change.
    pub(super) fn change(&mut self, (delta, scope): (&StateDelta, Scope), timestamp: Timestamp, limits: &Limits) {
        let is_own = |(key, value): (&str, &Json)| Scope::of(key).0 == scope && !limits.removes(value);
        let is_whole = scope == Scope::Session && delta.iter().all(is_own);
        if is_whole && self.state.is_empty() {
            // Nothing is copied: the event that brings the delta shares it.
            self.state = delta.clone().into();
            self.state_bytes = self.state.iter().map(|(name, value)| name.len() + value.get().len()).sum();
        } else {
            self.set(delta.within(scope), limits);
        }
        self.revision += 1;
        self.last_update = timestamp;
        self.changed_at = Timestamp::now();
    }

    fn set<'a>(&mut self, changes: impl Iterator<Item = (&'a str, &'a Json)>, limits: &Limits) {
        for (name, value) in changes {
            if limits.removes(value) {
                self.remove(name);
                continue;
            }
            // Added before the old value is subtracted, so that the sum never falls below zero.
            self.state_bytes += name.len() + value.get().len();
            if let Some(previous) = self.state.insert(name.to_owned(), value.clone()) {
                self.state_bytes -= name.len() + previous.get().len();
            }
        }
    }

    /// Removes a key. Returns true if the key existed.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some(previous) = self.state.remove(name) else { return false };
        self.state_bytes -= name.len() + previous.get().len();
        true
    }
}
