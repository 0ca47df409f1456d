//! Keeps conversations and their shared maps of state in memory, in the order of their last use.
//!
//! One list has a slot for each conversation and for each shared map. A use of a conversation moves the slot of the
//! conversation first, and then the slots of its shared maps. A shared map thus counts as used after all of its conversations,
//! and is evicted after the last of these conversations.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use annex_protocol::{ContextId, Timestamp};
use lru::LruCache;

use super::bounds::MemoryBounds;
use super::slot::Slot;
use super::slot_key::{Prehashed, SlotKey, SlotKeys};
use crate::admin::ConversationQuery;
use crate::entry::{Entry, Note};
use crate::error::AppendError;
use crate::history::{ConversationSnapshot, StoredArtifact, Window};
use crate::key::ConversationKey;
use crate::limits::{Limits, ScopeSize};
use crate::retention::Keep;
use crate::state::{STORED, Scope, ScopedState, StateDelta};

pub(super) struct Conversations {
    limits: Limits,
    max_conversations: usize,
    max_bytes: usize,
    slots: LruCache<SlotKey, Slot, BuildHasherDefault<Prehashed>>,
    /// The number of slots that hold a conversation and not a shared map.
    count: usize,
    bytes: usize,
}

impl Conversations {
    pub(super) fn new(bounds: &MemoryBounds) -> Self {
        let slots = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        let MemoryBounds { limits, max_conversations, max_conversation_bytes: max_bytes, .. } = *bounds;
        Self { limits, max_conversations, max_bytes, slots, count: 0, bytes: 0 }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The number of events of a conversation, 0 if there is none.
    pub(super) fn number(&self, key: &ConversationKey) -> u64 {
        self.slot(&SlotKeys::new(key), Scope::Conversation).map_or(0, |slot| slot.number)
    }

    /// Reads a conversation with its shared state. A missing conversation has only the shared state.
    pub(super) fn read(&self, key: &ConversationKey, window: Window) -> ConversationSnapshot {
        let keys = SlotKeys::new(key);
        let slot = self.slot(&keys, Scope::Conversation);
        let state = |scope| self.slot(&keys, scope).map(|slot| slot.state.clone()).unwrap_or_default();
        let state = ScopedState { own: state(Scope::Conversation), user: state(Scope::User), app: state(Scope::App) };
        ConversationSnapshot {
            key: key.clone(),
            number: slot.map_or(0, |slot| slot.number),
            state,
            updated_at: slot.map_or_else(Timestamp::now, |slot| slot.updated_at),
            history: slot.map(|slot| slot.history.read(window)).unwrap_or_default(),
            upstream: slot.and_then(|slot| slot.upstream.clone()),
            receipt: slot.and_then(|slot| slot.receipt.clone()),
        }
    }

    /// The latest version of an artifact.
    pub(super) fn artifact(&self, key: &ConversationKey, name: &str) -> Option<StoredArtifact> {
        self.slot(&SlotKeys::new(key), Scope::Conversation)?.artifacts.get(name).cloned()
    }

    /// Checks that an append with this change of state would stay within the limits.
    pub(super) fn check(&self, key: &ConversationKey, delta: &StateDelta) -> Result<(), AppendError> {
        if delta.is_empty() {
            return Ok(());
        }
        let keys = SlotKeys::new(key);
        for scope in STORED.into_iter().filter(|scope| delta.touches(*scope)) {
            let slot = self.slot(&keys, scope);
            let before = slot
                .map_or_else(ScopeSize::default, |slot| ScopeSize { bytes: slot.state_bytes, keys: slot.state.len() });
            let mut after = before;
            for (name, value) in delta.within(scope) {
                let previous = slot.and_then(|slot| slot.state.get(name));
                if !self.limits.removes(value) {
                    after.bytes += name.len() + value.get().len();
                    after.keys += 1;
                }
                after.bytes -= previous.map_or(0, |previous| name.len() + previous.get().len());
                after.keys -= usize::from(previous.is_some());
            }
            self.limits.check_change(scope, before, after)?;
        }
        Ok(())
    }

    /// Stores the events, state and notes of entries. The first event creates the conversation.
    pub(super) fn store(&mut self, key: &ConversationKey, entries: &[Entry]) {
        let limits = self.limits;
        let keys = SlotKeys::new(key);
        let mut is_changed = false;
        for entry in entries {
            if let Some(event) = entry.event() {
                is_changed = true;
                self.update(&keys, Scope::Conversation, |slot| slot.push(event, &limits));
                let delta = &event.state_delta;
                for scope in STORED.into_iter().filter(|scope| !delta.is_empty() && delta.touches(*scope)) {
                    self.update(&keys, scope, |slot| slot.set((delta, scope), &limits));
                }
            } else if let Entry::Note(Note::UpstreamContext(ids)) = entry
                && self.slots.contains(&keys.own)
            {
                self.update(&keys, Scope::Conversation, |slot| slot.upstream = Some(ids.clone()));
            } else if let Entry::Note(Note::Receipt(last)) = entry
                && self.slots.contains(&keys.own)
            {
                self.update(&keys, Scope::Conversation, |slot| slot.receipt = Some(last.clone()));
            }
        }
        if is_changed {
            self.promote(&keys);
        }
    }

    /// Marks a conversation and its shared maps as used now.
    pub(super) fn touch(&mut self, key: &ConversationKey) {
        self.promote(&SlotKeys::new(key));
    }

    /// Removes a conversation. Shared state stays. Returns `false` if the conversation does not exist.
    pub(super) fn delete(&mut self, key: &ConversationKey) -> bool {
        let keys = SlotKeys::new(key);
        let Some(slot) = self.slots.pop(&keys.own) else { return false };
        self.count -= 1;
        self.bytes -= slot.bytes();
        // The `user:` state of an anonymous user has no other conversation.
        if key.is_anonymous() {
            self.delete_user_state(key);
        }
        true
    }

    /// Removes one full key. Returns `false` if the key does not exist.
    pub(super) fn delete_key(&mut self, owner: &ConversationKey, full_key: &str) -> bool {
        let (scope, name) = Scope::of(full_key);
        let keys = SlotKeys::new(owner);
        if self.slot(&keys, scope).is_none_or(|slot| !slot.state.contains_key(name)) {
            return false;
        }
        let mut is_removed = false;
        self.update(&keys, scope, |slot| is_removed = slot.remove(name));
        is_removed
    }

    /// Removes the `user:` keys of a user and returns their number.
    pub(super) fn delete_user_state(&mut self, owner: &ConversationKey) -> u64 {
        let keys = SlotKeys::new(owner);
        let Some(slot) = keys.of(Scope::User).and_then(|user| self.slots.pop(user.as_ref())) else { return 0 };
        self.bytes -= slot.bytes();
        slot.state.len() as u64
    }

    /// The conversations and the bytes of state of a tenant.
    pub(super) fn holdings(&self, tenant: &str) -> (u64, u64) {
        let of_tenant = self.slots.iter().filter(|(key, _)| *key.name.tenant() == *tenant);
        of_tenant.fold((0, 0), |(conversations, bytes), (key, slot)| {
            (conversations + u64::from(key.name.conversation().is_some()), bytes + slot.state_bytes as u64)
        })
    }

    /// A page of conversations. The conversation that was unchanged for longest comes first.
    pub(super) fn list(&self, query: &ConversationQuery) -> Vec<ConversationSnapshot> {
        let matches = |key: &ConversationKey| {
            let is_users = query.user.as_ref().is_none_or(|user| *key.user == **user);
            *key.tenant == *query.tenant && *key.app == *query.app && is_users
        };
        let keys = self.keys().map(|(key, _)| key).filter(|key| matches(key));
        let mut found: Vec<ConversationSnapshot> = keys
            .map(|key| self.read(key, Window::NONE))
            .filter(|found| query.after.as_ref().is_none_or(|after| found.cursor() > *after))
            .collect();
        found.sort_by_cached_key(ConversationSnapshot::cursor);
        found.truncate(query.limit);
        found
    }

    /// The users with a conversation in a context, in the order of their names.
    pub(super) fn users_in(&self, (tenant, app, context): (&str, &str, &ContextId), limit: usize) -> Vec<String> {
        let is_there = |key: &ConversationKey| *key.tenant == *tenant && *key.app == *app && key.context == *context;
        let mut users: Vec<String> =
            self.keys().filter(|(key, _)| is_there(key)).map(|(key, _)| key.user.to_string()).collect();
        users.sort();
        users.truncate(limit);
        users
    }

    /// Drops idle conversations that are too old, and the oldest idle conversations of each tenant with too many. Returns the
    /// number of dropped conversations.
    pub(super) fn sweep(&mut self, keep: &Keep, is_busy: impl Fn(&ConversationKey) -> bool) -> u64 {
        let mut of_tenants: HashMap<&str, Vec<(Timestamp, &ConversationKey)>> = HashMap::new();
        for (key, slot) in self.keys() {
            of_tenants.entry(&key.tenant).or_default().push((slot.changed_at, key));
        }
        let before = keep.before(Timestamp::now().as_millis());
        let mut old: Vec<ConversationKey> = Vec::new();
        for mut changed in of_tenants.into_values() {
            changed.sort();
            let surplus = changed.len().saturating_sub(usize::try_from(keep.count).unwrap_or(usize::MAX));
            let beyond = changed.into_iter().enumerate().filter(|(index, (changed_at, key))| {
                (*index < surplus || changed_at.as_millis() < before) && !is_busy(key)
            });
            old.extend(beyond.map(|(_, (_, key))| key.clone()));
        }
        old.iter().filter(|key| self.delete(key)).count() as u64
    }

    /// Removes the least recently used slots until the store is within its bounds or only busy conversations are left.
    /// Returns the slots, which the caller frees.
    pub(super) fn evict(&mut self, is_busy: impl Fn(&ConversationKey) -> bool) -> Vec<Slot> {
        let mut spared = 0;
        let mut evicted = Vec::new();
        // Busy conversations move to the other end. Their count ends the loop when nothing else is left.
        while (self.count > self.max_conversations || self.bytes > self.max_bytes)
            && spared < self.slots.len()
            && let Some((oldest, slot)) = self.slots.peek_lru()
        {
            let bytes = slot.bytes();
            if let Some(key) = oldest.name.conversation() {
                // A turn has read this conversation and will append to it, so the conversation stays even above the
                // limits.
                if is_busy(key) {
                    let key = key.clone();
                    self.touch(&key);
                    spared += 1;
                    continue;
                }
                self.count -= 1;
            }
            self.bytes -= bytes;
            evicted.extend(self.slots.pop_lru().map(|(_, slot)| slot));
        }
        evicted
    }

    fn keys(&self) -> impl Iterator<Item = (&ConversationKey, &Slot)> {
        self.slots.iter().filter_map(|(key, slot)| Some((key.name.conversation()?, slot)))
    }

    fn promote(&mut self, keys: &SlotKeys<'_>) {
        // The conversation is promoted first. Slots are dropped from the oldest on, so the maps that conversations
        // share must be younger.
        for scope in STORED {
            if self.has(scope)
                && let Some(slot) = keys.of(scope)
            {
                self.slots.promote(slot.as_ref());
            }
        }
    }

    /// True if there may be slots of this scope. If no conversation shares state, this saves the look-up.
    fn has(&self, scope: Scope) -> bool {
        scope == Scope::Conversation || self.slots.len() > self.count
    }

    fn slot(&self, keys: &SlotKeys<'_>, scope: Scope) -> Option<&Slot> {
        if !self.has(scope) {
            return None;
        }
        self.slots.peek(keys.of(scope)?.as_ref())
    }

    /// Changes one slot and updates the sums. Creates the slot if it is missing.
    fn update(&mut self, keys: &SlotKeys<'_>, scope: Scope, change: impl FnOnce(&mut Slot)) {
        let Some(key) = keys.of(scope) else { return };
        if !self.slots.contains(key.as_ref()) {
            let slot = Slot::new(&key);
            self.count += usize::from(scope == Scope::Conversation);
            self.bytes += slot.bytes();
            self.slots.put(SlotKey::clone(&key), slot);
        }
        if let Some(slot) = self.slots.peek_mut(key.as_ref()) {
            // The old size is subtracted and the new one added, so that `change` need not count anything.
            self.bytes -= slot.bytes();
            change(slot);
            self.bytes += slot.bytes();
        }
    }
}
