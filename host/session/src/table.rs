//! The content of the in-memory service: sessions and their shared maps, in the order of their last use.
//!
//! One list of slots holds both. A session is used before its shared maps, so the oldest slot is never a map with
//! younger sessions: a shared map is evicted after the last session that could see the map.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem;

use annex_protocol::{ContextId, Timestamp};
use lru::LruCache;

use crate::SessionError;
use crate::event::{Event, combined};
use crate::event_log::EventFilter;
use crate::limits::ScopeSize;
use crate::memory::Bounds;
use crate::service::{Appended, Holdings, Retention, SessionQuery, StoredArtifact};
use crate::session::{Session, SessionKey};
use crate::session_state::SessionState;
use crate::state::{STORED, Scope, StateDelta};

mod slot;
mod slot_key;

use slot::Slot;
use slot_key::{Prehashed, SlotKey, SlotKeys, SlotName};

pub(crate) struct Table {
    bounds: Bounds,
    slots: LruCache<SlotKey, Slot, BuildHasherDefault<Prehashed>>,
    sessions: usize,
    bytes: usize,
    /// The number of turns that run, by session. The session need not exist yet.
    turns: HashMap<SlotKey, usize, BuildHasherDefault<Prehashed>>,
}

impl Table {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let slots = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        Self { bounds, slots, sessions: 0, bytes: 0, turns: HashMap::default() }
    }

    /// Creates a session with its initial state, at revision 1.
    pub(crate) fn create(&mut self, key: &SessionKey, initial: &StateDelta) -> Result<(), SessionError> {
        key.check()?;
        let keys = SlotKeys::new(key);
        if self.revision_of(&keys) != 0 {
            return Err(SessionError::AlreadyExists { context: key.context.clone() });
        }
        self.bounds.limits.check_delta(initial)?;
        self.check_state(&keys, initial)?;
        self.change(&keys, initial, Timestamp::now());
        self.promote(&keys);
        Ok(())
    }

    /// Stores those of the events that are not stored, if `expected` is the session's revision.
    pub(crate) fn append(
        &mut self,
        key: &SessionKey,
        expected: u64,
        mut events: Vec<Event>,
    ) -> Result<Appended, SessionError> {
        events.retain(|event| !event.partial);
        if events.is_empty() {
            return Ok(Appended { revision: expected, repeated: false });
        }
        for event in &mut events {
            event.state_delta.take_temp();
        }
        let keys = SlotKeys::new(key);
        let found = self.revision_of(&keys);
        // Before the revision is looked at: the same call again is a retry, whatever it expects.
        let new = self.new_events(&keys, events)?;
        if new.is_empty() {
            return Ok(Appended { revision: found, repeated: true });
        }
        match (expected, found) {
            // A key that was not checked was never stored, so that one which is found needs no check.
            (0, 0) => key.check()?,
            (_, 0) => return Err(key.not_found()),
            _ if expected != found => return Err(SessionError::Stale { expected, found }),
            _ => {}
        }
        // Nothing is rolled back in memory, so that whatever can refuse comes before the first change.
        new.iter().try_for_each(|event| self.bounds.limits.check_event(event))?;
        self.check_state(&keys, &combined(new.iter().map(|event| &event.state_delta)))?;
        for event in new {
            self.store(&keys, event);
        }
        self.promote(&keys);
        Ok(Appended { revision: self.revision_of(&keys), repeated: false })
    }

    /// The events that are not stored yet.
    fn new_events(&self, keys: &SlotKeys<'_>, events: Vec<Event>) -> Result<Vec<Event>, SessionError> {
        let Some(slot) = self.slot(keys, Scope::Session) else { return Ok(events) };
        let mut new = Vec::with_capacity(events.len());
        for event in events {
            match slot.events.by_id(&event.id) {
                None => new.push(event),
                Some(stored) if stored.is_same(&event) => {}
                Some(_) => return Err(SessionError::EventConflict { id: event.id }),
            }
        }
        Ok(new)
    }

    /// Removes a session with its events. Returns true if the session existed. Shared state stays.
    pub(crate) fn delete(&mut self, key: &SessionKey) -> bool {
        let keys = SlotKeys::new(key);
        let Some(slot) = self.slots.pop(&keys.session) else { return false };
        self.sessions -= 1;
        self.bytes -= slot.bytes();
        // The `user:` state of an anonymous user has no other session.
        if key.is_anonymous()
            && let Some(user) = keys.of(Scope::User)
            && let Some(slot) = self.slots.pop(user.as_ref())
        {
            self.bytes -= slot.bytes();
        }
        true
    }

    /// Removes one full key. Returns true if the key existed.
    pub(crate) fn delete_key(&mut self, owner: &SessionKey, full_key: &str) -> bool {
        let (scope, name) = Scope::of(full_key);
        let keys = SlotKeys::new(owner);
        if self.slot(&keys, scope).is_none_or(|slot| !slot.state.contains_key(name)) {
            return false;
        }
        let mut is_removed = false;
        self.update(&keys, scope, |slot| is_removed = slot.remove(name));
        is_removed
    }

    /// Removes the `user:` keys of a user, and says how many there were.
    pub(crate) fn delete_user_state(&mut self, owner: &SessionKey) -> u64 {
        let keys = SlotKeys::new(owner);
        let Some(slot) = keys.of(Scope::User).and_then(|user| self.slots.pop(user.as_ref())) else { return 0 };
        self.bytes -= slot.bytes();
        slot.state.len() as u64
    }

    /// The revision of a session, 0 if there is none.
    pub(crate) fn revision(&self, key: &SessionKey) -> u64 {
        self.revision_of(&SlotKeys::new(key))
    }

    fn revision_of(&self, keys: &SlotKeys<'_>) -> u64 {
        self.slot(keys, Scope::Session).map_or(0, |slot| slot.revision)
    }

    /// The session of this key. A session that does not exist still has the shared keys of other sessions.
    pub(crate) fn session(&self, key: &SessionKey, filter: EventFilter) -> Session {
        let keys = SlotKeys::new(key);
        let slot = self.slot(&keys, Scope::Session);
        let state = |scope| self.slot(&keys, scope).map(|slot| slot.state.clone()).unwrap_or_default();
        Session {
            key: key.clone(),
            revision: slot.map_or(0, |slot| slot.revision),
            state: SessionState { session: state(Scope::Session), user: state(Scope::User), app: state(Scope::App) },
            last_update: slot.map_or_else(Timestamp::now, |slot| slot.last_update),
            events: slot.map(|slot| slot.events.read(filter)).unwrap_or_default(),
        }
    }

    /// Counts the sessions and bytes of a tenant.
    pub(crate) fn holdings(&self, tenant: &str) -> Holdings {
        let mut holdings = Holdings::default();
        for (key, slot) in &self.slots {
            let (of, is_session) = match &key.name {
                SlotName::Session(key) => (&key.tenant, true),
                SlotName::User { tenant, .. } | SlotName::App { tenant, .. } => (tenant, false),
            };
            if **of == *tenant {
                holdings.sessions += u64::from(is_session);
                holdings.state_bytes += slot.state_bytes as u64;
            }
        }
        holdings
    }

    /// A page of sessions, the longest unchanged first.
    pub(crate) fn list(&self, query: &SessionQuery) -> Vec<Session> {
        let matches = |key: &SessionKey| {
            let is_users = query.user.as_ref().is_none_or(|user| *key.user == **user);
            *key.tenant == *query.tenant && *key.app == *query.app && is_users
        };
        let mut sessions: Vec<Session> = self
            .slots
            .iter()
            .filter_map(|(key, _)| match &key.name {
                SlotName::Session(key) if matches(key) => Some(self.session(key, EventFilter::NONE)),
                SlotName::Session(_) | SlotName::User { .. } | SlotName::App { .. } => None,
            })
            .filter(|session| query.after.as_ref().is_none_or(|after| session.cursor() > *after))
            .collect();
        sessions.sort_by_cached_key(Session::cursor);
        sessions.truncate(query.limit);
        sessions
    }

    /// The users with a session in a context, in the order of their names.
    pub(crate) fn users_in(&self, (tenant, app, context): (&str, &str, &ContextId), limit: usize) -> Vec<String> {
        let user = |name: &SlotName| match name {
            SlotName::Session(key) if *key.tenant == *tenant && *key.app == *app && key.context == *context => {
                Some(key.user.to_string())
            }
            SlotName::Session(_) | SlotName::User { .. } | SlotName::App { .. } => None,
        };
        let mut users: Vec<String> = self.slots.iter().filter_map(|(key, _)| user(&key.name)).collect();
        users.sort();
        users.truncate(limit);
        users
    }

    /// The latest version of an artifact.
    pub(crate) fn artifact(&self, key: &SessionKey, name: &str) -> Option<StoredArtifact> {
        self.slot(&SlotKeys::new(key), Scope::Session)?.artifacts.get(name).cloned()
    }

    /// Drops sessions that are too old or too many for their tenant, except sessions with a running turn. Returns the
    /// number of dropped sessions.
    pub(crate) fn sweep(&mut self, retention: &Retention) -> u64 {
        let mut of_tenants: HashMap<&str, Vec<(Timestamp, &SessionKey)>> = HashMap::new();
        for (key, slot) in &self.slots {
            if let SlotName::Session(key) = &key.name {
                of_tenants.entry(&key.tenant).or_default().push((slot.changed_at, key));
            }
        }
        let before = retention.changed_before(Timestamp::now());
        let mut old: Vec<SessionKey> = Vec::new();
        for mut changed in of_tenants.into_values() {
            changed.sort();
            let surplus = changed.len().saturating_sub(usize::try_from(retention.count).unwrap_or(usize::MAX));
            let beyond = (0..).zip(changed).filter(|(place, (changed_at, key))| {
                let is_old = *place < surplus || changed_at.as_millis() < before;
                is_old && !self.turns.contains_key(&SlotKeys::new(key).session)
            });
            old.extend(beyond.map(|(_, (_, key))| key.clone()));
        }
        old.iter().filter(|key| self.delete(key)).count() as u64
    }

    /// Marks a session and then its shared maps as used now. Only this method may change the order.
    pub(crate) fn touch(&mut self, key: &SessionKey) {
        self.promote(&SlotKeys::new(key));
    }

    fn promote(&mut self, keys: &SlotKeys<'_>) {
        // The session first: the maps that it shares must be younger, because slots go from the oldest on.
        for scope in STORED {
            if self.has(scope)
                && let Some(slot) = keys.of(scope)
            {
                self.slots.promote(slot.as_ref());
            }
        }
    }

    /// True if there may be slots of this scope. Saves look-ups if no session has shared keys.
    fn has(&self, scope: Scope) -> bool {
        scope == Scope::Session || self.slots.len() > self.sessions
    }

    /// Keeps a session from eviction until as many calls of [`Table::end_turn`].
    pub(crate) fn begin_turn(&mut self, key: &SessionKey) {
        *self.turns.entry(SlotKeys::new(key).session).or_insert(0) += 1;
    }

    pub(crate) fn end_turn(&mut self, key: &SessionKey) {
        let slot = SlotKeys::new(key).session;
        if let Some(running) = self.turns.get_mut(&slot) {
            *running -= 1;
            if *running == 0 {
                self.turns.remove(&slot);
            }
        }
    }

    /// Removes the least recently used slots until the bounds hold or only running turns remain. The caller drops the
    /// slots after unlocking the table.
    pub(crate) fn evict(&mut self) -> Vec<Slot> {
        let mut spared = 0;
        let mut evicted = Vec::new();
        // Sessions with a turn move to the other end. Their count ends the loop when nothing else is left.
        while (self.sessions > self.bounds.max_sessions || self.bytes > self.bounds.max_bytes)
            && spared < self.slots.len()
            && let Some((oldest, slot)) = self.slots.peek_lru()
        {
            let bytes = slot.bytes();
            if let SlotName::Session(key) = &oldest.name {
                // A turn has read this session and is going to append to it, so it stays, even beyond the bounds.
                if self.turns.contains_key(oldest) {
                    let key = key.clone();
                    self.touch(&key);
                    spared += 1;
                    continue;
                }
                self.sessions -= 1;
            }
            self.bytes -= bytes;
            evicted.extend(self.slots.pop_lru().map(|(_, slot)| slot));
        }
        evicted
    }

    fn slot(&self, keys: &SlotKeys<'_>, scope: Scope) -> Option<&Slot> {
        if !self.has(scope) {
            return None;
        }
        self.slots.peek(keys.of(scope)?.as_ref())
    }

    fn store(&mut self, keys: &SlotKeys<'_>, mut event: Event) {
        self.change(keys, &event.state_delta, event.timestamp);
        let limits = self.bounds.limits;
        self.update(keys, Scope::Session, |slot| {
            for (name, parts) in mem::take(&mut event.artifacts) {
                slot.artifacts.put(name, parts, &limits);
            }
            slot.events.push(event, limits.events);
        });
    }

    fn check_state(&self, keys: &SlotKeys<'_>, delta: &StateDelta) -> Result<(), SessionError> {
        for scope in STORED {
            if !delta.touches(scope) {
                continue;
            }
            let slot = self.slot(keys, scope);
            let limits = &self.bounds.limits;
            let before = slot
                .map_or_else(ScopeSize::default, |slot| ScopeSize { bytes: slot.state_bytes, keys: slot.state.len() });
            let mut after = before;
            for (name, value) in delta.within(scope) {
                let previous = slot.and_then(|slot| slot.state.get(name));
                if !limits.removes(value) {
                    after.bytes += name.len() + value.get().len();
                    after.keys += 1;
                }
                after.bytes -= previous.map_or(0, |previous| name.len() + previous.get().len());
                after.keys -= usize::from(previous.is_some());
            }
            limits.check_change(scope, before, after)?;
        }
        Ok(())
    }

    /// Applies a delta to all scopes. The session counts a revision and the time even if none of its keys change.
    fn change(&mut self, keys: &SlotKeys<'_>, delta: &StateDelta, timestamp: Timestamp) {
        let limits = self.bounds.limits;
        for scope in STORED {
            if scope == Scope::Session || delta.touches(scope) {
                self.update(keys, scope, |slot| slot.change((delta, scope), timestamp, &limits));
            }
        }
    }

    /// Changes one slot, which is made if it is missing, and keeps the sums right.
    fn update(&mut self, keys: &SlotKeys<'_>, scope: Scope, change: impl FnOnce(&mut Slot)) {
        let Some(key) = keys.of(scope) else { return };
        if !self.slots.contains(key.as_ref()) {
            let slot = Slot::new(&key);
            self.sessions += usize::from(scope == Scope::Session);
            self.bytes += slot.bytes();
            self.slots.put(SlotKey::clone(&key), slot);
        }
        if let Some(slot) = self.slots.peek_mut(key.as_ref()) {
            // The old size goes and the new one comes, so that `change` need not count anything.
            self.bytes -= slot.bytes();
            change(slot);
            self.bytes += slot.bytes();
        }
    }
}
