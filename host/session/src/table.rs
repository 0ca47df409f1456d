//! What the in-memory service keeps: sessions and the maps that they share, in the order of their last use.
//!
//! One list of slots holds both. A session is used before the maps that it shares, so the oldest slot is never a map
//! whose sessions are younger: shared state goes after the last session that could see it.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

use annex_protocol::{Json, Timestamp};
use lru::LruCache;

use crate::SessionError;
use crate::event::Event;
use crate::event_log::{EventFilter, EventLog};
use crate::memory::Bounds;
use crate::session::{Session, SessionKey};
use crate::state::{Scope, State, StateDelta};

/// The scopes that are stored, in the order in which their slots are used.
const STORED: [Scope; 3] = [Scope::Session, Scope::User, Scope::App];

pub(crate) struct Table {
    bounds: Bounds,
    slots: LruCache<SlotKey, Slot, RandomState>,
    sessions: usize,
    bytes: usize,
    /// How many turns are running, by session. The session need not exist yet.
    turns: HashMap<SessionKey, usize>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum SlotKey {
    Session(SessionKey),
    User { tenant: String, app: String, user: String },
    App { tenant: String, app: String },
}

impl SlotKey {
    /// The slot in which a session keeps its keys of `scope`; `None` for `temp:`, which is kept nowhere.
    fn of(key: &SessionKey, scope: Scope) -> Option<Self> {
        let (tenant, app) = (key.tenant.clone(), key.app.clone());
        match scope {
            Scope::Session => Some(Self::Session(key.clone())),
            Scope::User => Some(Self::User { tenant, app, user: key.user.clone() }),
            Scope::App => Some(Self::App { tenant, app }),
            Scope::Temp => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Session(SessionKey { tenant, app, user, context }) => {
                tenant.len() + app.len() + user.len() + context.as_str().len()
            }
            Self::User { tenant, app, user } => tenant.len() + app.len() + user.len(),
            Self::App { tenant, app } => tenant.len() + app.len(),
        }
    }
}

/// One session, or one shared map, which has no events.
struct Slot {
    key_bytes: usize,
    state: State,
    state_bytes: usize,
    revision: u64,
    last_update: Timestamp,
    events: EventLog,
}

impl Slot {
    /// A flat charge for a slot and its place in the list.
    const OVERHEAD: usize = 512;

    fn new(key: &SlotKey) -> Self {
        Self {
            key_bytes: key.bytes(),
            state: State::new(),
            state_bytes: 0,
            revision: 0,
            last_update: Timestamp::now(),
            events: EventLog::default(),
        }
    }

    fn bytes(&self) -> usize {
        Self::OVERHEAD + self.key_bytes + self.state_bytes + self.events.bytes()
    }

    /// Sets keys. The revision counts such steps, also those that set nothing.
    fn change<'a>(&mut self, changes: impl Iterator<Item = (&'a str, &'a Json)>, timestamp: Timestamp) {
        for (name, value) in changes {
            self.state_bytes += name.len() + value.get().len();
            if let Some(previous) = self.state.insert(name.to_owned(), value.clone()) {
                self.state_bytes -= name.len() + previous.get().len();
            }
        }
        self.revision += 1;
        self.last_update = timestamp;
    }
}

impl Table {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let slots = LruCache::unbounded_with_hasher(RandomState::new());
        Self { bounds, slots, sessions: 0, bytes: 0, turns: HashMap::new() }
    }

    /// Creates a session with its initial state, at revision 1.
    pub(crate) fn create(&mut self, key: &SessionKey, initial: &StateDelta) -> Result<(), SessionError> {
        key.check()?;
        if self.revision(key) != 0 {
            return Err(SessionError::AlreadyExists { context: key.context.clone() });
        }
        self.check_state_size(key, initial)?;
        self.change(key, initial, Timestamp::now());
        self.touch(key);
        Ok(())
    }

    /// Stores an event without `temp:` keys and its delta, if `expected` is the session's revision.
    pub(crate) fn append(&mut self, key: &SessionKey, expected: u64, event: Event) -> Result<(), SessionError> {
        let slot = self.slot(key, Scope::Session).ok_or_else(|| key.not_found())?;
        if let Some(stored) = slot.events.by_id(&event.id) {
            return if **stored == event { Ok(()) } else { Err(SessionError::EventConflict { id: event.id }) };
        }
        if slot.revision != expected {
            return Err(SessionError::Stale { expected, found: slot.revision });
        }
        self.store(key, event)
    }

    /// Creates a session with its first event, which leaves it at revision 1.
    pub(crate) fn append_first(&mut self, key: &SessionKey, event: Event) -> Result<(), SessionError> {
        key.check()?;
        match self.revision(key) {
            0 => self.store(key, event),
            found => Err(SessionError::Stale { expected: 0, found }),
        }
    }

    /// Removes a session with its events, and says whether there was one. What it shares with others stays.
    pub(crate) fn delete(&mut self, key: &SessionKey) -> bool {
        let Some(slot) = self.slots.pop(&SlotKey::Session(key.clone())) else { return false };
        self.sessions -= 1;
        self.bytes -= slot.bytes();
        true
    }

    /// The revision of a session, 0 if there is none.
    pub(crate) fn revision(&self, key: &SessionKey) -> u64 {
        self.slot(key, Scope::Session).map_or(0, |slot| slot.revision)
    }

    pub(crate) fn session(&self, key: &SessionKey) -> Option<Session> {
        let slot = self.slot(key, Scope::Session)?;
        Some(Session {
            key: key.clone(),
            revision: slot.revision,
            state: self.merged_state(key),
            last_update: slot.last_update,
        })
    }

    /// The sessions of one agent, or of one of its users, the longest unchanged first.
    pub(crate) fn list(&self, tenant: &str, app: &str, user: Option<&str>) -> Vec<Session> {
        let matches =
            |key: &SessionKey| key.tenant == tenant && key.app == app && user.is_none_or(|user| key.user == user);
        let mut sessions: Vec<Session> = self
            .slots
            .iter()
            .filter_map(|(key, _)| match key {
                SlotKey::Session(key) if matches(key) => self.session(key),
                SlotKey::Session(_) | SlotKey::User { .. } | SlotKey::App { .. } => None,
            })
            .collect();
        sessions.sort_by(|a, b| (a.last_update, &a.key).cmp(&(b.last_update, &b.key)));
        sessions
    }

    pub(crate) fn events(&self, key: &SessionKey, filter: EventFilter) -> Option<Vec<Arc<Event>>> {
        Some(self.slot(key, Scope::Session)?.events.read(filter))
    }

    /// What a session of this key sees, whether it exists or not: another one may have set what they share.
    pub(crate) fn merged_state(&self, key: &SessionKey) -> State {
        let mut merged = self.session_state(key);
        for scope in [Scope::App, Scope::User] {
            let shared = self.slot(key, scope).into_iter().flat_map(|slot| slot.state.iter());
            merged.extend(shared.map(|(name, value)| (format!("{}{name}", scope.prefix()), value.clone())));
        }
        merged
    }

    /// Session-scope keys only.
    pub(crate) fn session_state(&self, key: &SessionKey) -> State {
        self.slot(key, Scope::Session).map(|slot| slot.state.clone()).unwrap_or_default()
    }

    /// One value of the merged view.
    pub(crate) fn value(&self, key: &SessionKey, full_key: &str) -> Option<Json> {
        let (scope, name) = Scope::of(full_key);
        self.slot(key, scope)?.state.get(name).cloned()
    }

    /// Marks a session and then what it shares as used now. Nothing else may change the order.
    pub(crate) fn touch(&mut self, key: &SessionKey) {
        for slot in STORED.into_iter().filter_map(|scope| SlotKey::of(key, scope)) {
            self.slots.promote(&slot);
        }
    }

    /// Keeps a session from eviction until as many calls of [`Table::end_turn`].
    pub(crate) fn begin_turn(&mut self, key: &SessionKey) {
        *self.turns.entry(key.clone()).or_insert(0) += 1;
    }

    pub(crate) fn end_turn(&mut self, key: &SessionKey) {
        if let Some(running) = self.turns.get_mut(key) {
            *running -= 1;
            if *running == 0 {
                self.turns.remove(key);
            }
        }
    }

    /// Drops the least recently used slots until the bounds hold or only running turns are left.
    pub(crate) fn evict(&mut self) {
        let mut spared = 0;
        while (self.sessions > self.bounds.max_sessions || self.bytes > self.bounds.max_bytes)
            && spared < self.slots.len()
            && let Some((oldest, slot)) = self.slots.peek_lru()
        {
            let bytes = slot.bytes();
            if let SlotKey::Session(key) = oldest {
                if self.turns.contains_key(key) {
                    let key = key.clone();
                    self.touch(&key);
                    spared += 1;
                    continue;
                }
                self.sessions -= 1;
            }
            self.bytes -= bytes;
            self.slots.pop_lru();
        }
    }

    fn slot(&self, key: &SessionKey, scope: Scope) -> Option<&Slot> {
        self.slots.peek(&SlotKey::of(key, scope)?)
    }

    fn store(&mut self, key: &SessionKey, event: Event) -> Result<(), SessionError> {
        self.check_state_size(key, &event.state_delta)?;
        self.change(key, &event.state_delta, event.timestamp);
        let keep = self.bounds.max_events_per_session;
        self.update(key, Scope::Session, |slot| slot.events.push(event, keep));
        self.touch(key);
        Ok(())
    }

    fn check_state_size(&self, key: &SessionKey, delta: &StateDelta) -> Result<(), SessionError> {
        let limit = self.bounds.max_state_bytes;
        for scope in STORED {
            if !delta.touches(scope) {
                continue;
            }
            let slot = self.slot(key, scope);
            let mut bytes = slot.map_or(0, |slot| slot.state_bytes);
            for (name, value) in delta.within(scope) {
                let previous = slot.and_then(|slot| slot.state.get(name));
                bytes += name.len() + value.get().len();
                bytes -= previous.map_or(0, |previous| name.len() + previous.get().len());
            }
            if bytes > limit {
                return Err(SessionError::StateTooLarge { scope, bytes, limit });
            }
        }
        Ok(())
    }

    /// Applies a delta to all scopes. The session counts a revision and the time even if none of its keys change.
    fn change(&mut self, key: &SessionKey, delta: &StateDelta, timestamp: Timestamp) {
        for scope in STORED {
            if scope == Scope::Session || delta.touches(scope) {
                self.update(key, scope, |slot| slot.change(delta.within(scope), timestamp));
            }
        }
    }

    /// Changes one slot, which is made if it is missing, and keeps the sums right.
    fn update(&mut self, key: &SessionKey, scope: Scope, change: impl FnOnce(&mut Slot)) {
        let Some(slot_key) = SlotKey::of(key, scope) else { return };
        if !self.slots.contains(&slot_key) {
            let slot = Slot::new(&slot_key);
            self.sessions += usize::from(scope == Scope::Session);
            self.bytes += slot.bytes();
            self.slots.put(slot_key.clone(), slot);
        }
        if let Some(slot) = self.slots.peek_mut(&slot_key) {
            self.bytes -= slot.bytes();
            change(slot);
            self.bytes += slot.bytes();
        }
    }
}
