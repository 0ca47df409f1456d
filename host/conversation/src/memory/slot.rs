//! One conversation, or one shared map of state, in the memory store.

use std::sync::Arc;

use annex_protocol::{Json, JsonObject, Timestamp};

use super::slot_key::SlotKey;
use crate::entry::Event;
use crate::history::{Artifacts, History};
use crate::limits::Limits;
use crate::state::{Scope, StateDelta};

/// One conversation, or one shared map. A shared map has no history.
pub(super) struct Slot {
    key_bytes: usize,
    /// The keys and values of the scope. Readers share the map until a change.
    pub(super) state: JsonObject,
    pub(super) state_bytes: usize,
    /// The number of events.
    pub(super) number: u64,
    pub(super) updated_at: Timestamp,
    /// The time of the last change by the clock of this process.
    pub(super) changed_at: Timestamp,
    pub(super) history: History,
    pub(super) artifacts: Artifacts,
    /// The ids of the conversation at the upstream agent.
    pub(super) upstream: Option<Arc<str>>,
    /// The number and the digest of the last receipt.
    pub(super) receipt: Option<Arc<str>>,
}

impl Slot {
    /// A flat charge for a slot and its position in the list.
    const OVERHEAD: usize = 512;

    pub(super) fn new(key: &SlotKey) -> Self {
        let now = Timestamp::now();
        Self {
            key_bytes: key.name.bytes(),
            state: JsonObject::new(),
            state_bytes: 0,
            number: 0,
            updated_at: now,
            changed_at: now,
            history: History::default(),
            artifacts: Artifacts::default(),
            upstream: None,
            receipt: None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let notes: usize = self.upstream.iter().chain(&self.receipt).map(|text| text.len()).sum();
        Self::OVERHEAD + self.key_bytes + self.state_bytes + self.history.bytes() + self.artifacts.bytes() + notes
    }

    /// Adds an event to the history of a conversation, with its artifacts. The change of state is stored by
    /// [`set`](Self::set).
    pub(super) fn push(&mut self, event: &Arc<Event>, limits: &Limits) {
        for (name, parts) in &event.artifacts {
            self.artifacts.put(name, parts, limits);
        }
        self.number += 1;
        (self.updated_at, self.changed_at) = (event.timestamp, Timestamp::now());
        self.history.push(Event::kept(Arc::clone(event)), limits.events);
    }

    /// Sets and removes keys of one scope.
    pub(super) fn set(&mut self, (delta, scope): (&StateDelta, Scope), limits: &Limits) {
        let is_own = |(key, value): (&str, &Json)| Scope::of(key).0 == scope && !limits.removes(value);
        self.changed_at = Timestamp::now();
        if scope == Scope::Conversation && self.state.is_empty() && delta.iter().all(is_own) {
            // Nothing is copied, because the state shares the delta of the event.
            self.state = delta.clone().into();
            self.state_bytes = self.state.iter().map(|(name, value)| name.len() + value.get().len()).sum();
            return;
        }
        for (name, value) in delta.within(scope) {
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

    /// Removes a key. Returns `false` if the key does not exist.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some(previous) = self.state.remove(name) else { return false };
        self.state_bytes -= name.len() + previous.get().len();
        true
    }
}
