//! The session service that keeps everything in memory: fast, bounded, and empty after a restart.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::Json;

use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::session::{Session, SessionKey};
use crate::state::{State, StateDelta};
use crate::table::Table;
use crate::turn::TurnGuard;
use crate::turn_session::TurnSession;

/// How much the service may hold.
///
/// Beyond `max_sessions` or `max_bytes` the least recently used session goes, with its events. `user:` and `app:` maps
/// count as bytes too and go in the same order, which means after the last session that shares them. A session with a
/// turn running is never dropped, so running turns can exceed both bounds for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most sessions to hold. Default: 10 000.
    pub max_sessions: usize,
    /// The most memory to use for states and events, in bytes, roughly counted. Default: 256 MiB.
    pub max_bytes: usize,
    /// The most that one scope of one session may hold, in bytes of keys and JSON values. A change that would exceed
    /// it is refused. Default: 256 KiB.
    pub max_state_bytes: usize,
    /// The most events to hold of one session. Older ones are dropped; the state that they made stays. Default: 1 000.
    pub max_events_per_session: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_sessions: 10_000,
            max_bytes: 256 * 1024 * 1024,
            max_state_bytes: 256 * 1024,
            max_events_per_session: 1_000,
        }
    }
}

/// Sessions in memory. All methods are atomic and may be called from any thread; none waits for anything but the
/// others' few microseconds.
pub struct InMemorySessionService {
    table: Mutex<Table>,
}

impl InMemorySessionService {
    /// An empty service.
    pub fn new(bounds: Bounds) -> Self {
        Self { table: Mutex::new(Table::new(bounds)) }
    }

    /// Creates a session, at revision 1. `temp:` keys of `initial` are dropped; `user:` and `app:` keys are visible to
    /// the other sessions of their scope at once.
    ///
    /// # Errors
    /// [`SessionError::AlreadyExists`], [`SessionError::StateTooLarge`] or [`SessionError::InvalidContextId`].
    pub fn create(&self, key: &SessionKey, mut initial: StateDelta) -> Result<Session, SessionError> {
        initial.take_temp();
        let mut table = self.table();
        table.create(key, &initial)?;
        finish(&mut table, key)
    }

    /// Reads a session.
    pub fn get(&self, key: &SessionKey) -> Option<Session> {
        let mut table = self.table();
        table.touch(key);
        table.session(key)
    }

    /// Reads a session, which is created with no state of its own if it is missing.
    ///
    /// # Errors
    /// [`SessionError::InvalidContextId`].
    pub fn get_or_create(&self, key: &SessionKey) -> Result<Session, SessionError> {
        let mut table = self.table();
        match table.revision(key) {
            0 => table.create(key, &StateDelta::new())?,
            _ => table.touch(key),
        }
        finish(&mut table, key)
    }

    /// Reads the events of a session in the order in which they were appended.
    ///
    /// # Errors
    /// [`SessionError::NotFound`].
    pub fn events(&self, key: &SessionKey, filter: EventFilter) -> Result<Vec<Arc<Event>>, SessionError> {
        self.table().events(key, filter).ok_or_else(|| key.not_found())
    }

    /// Whether there is such a session. Asking does not count as using it.
    pub fn exists(&self, key: &SessionKey) -> bool {
        self.table().revision(key) != 0
    }

    /// The sessions of one agent, or of one of its users, the longest unchanged first.
    pub fn list(&self, tenant: &str, app: &str, user: Option<&str>) -> Vec<Session> {
        self.table().list(tenant, app, user)
    }

    /// Deletes a session and its events; `user:` and `app:` state stays. Says whether there was one.
    pub fn delete(&self, key: &SessionKey) -> bool {
        self.table().delete(key)
    }

    /// Stores an event and applies its delta in one step, if nobody appended since the session had
    /// `expected_revision`.
    ///
    /// `temp:` keys are dropped, from the stored event too. A partial event is not stored and changes nothing. The same
    /// event again, even with an outdated revision, is a retry: it succeeds and changes nothing.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::Stale`], [`SessionError::EventConflict`] or
    /// [`SessionError::StateTooLarge`].
    pub fn append(&self, key: &SessionKey, expected_revision: u64, mut event: Event) -> Result<Session, SessionError> {
        event.state_delta.take_temp();
        let mut table = self.table();
        if !event.partial {
            table.append(key, expected_revision, event)?;
        }
        finish(&mut table, key)
    }

    /// Starts a turn on a session that may not exist yet: opening creates nothing, the first append does.
    ///
    /// The session is safe from eviction until the last clone of the `TurnSession` is dropped, which also ends the
    /// turn that `guard` stands for.
    pub fn open(self: &Arc<Self>, key: SessionKey, guard: TurnGuard) -> TurnSession {
        let revision = {
            let mut table = self.table();
            table.begin_turn(&key);
            table.touch(&key);
            table.revision(&key)
        };
        TurnSession::new(Arc::clone(self), key, revision, guard)
    }

    /// Like [`InMemorySessionService::append`] for a turn: creates the session when the turn found none, that is when
    /// `expected_revision` is 0. Gives the new revision.
    pub(crate) fn append_in_turn(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        event: Event,
    ) -> Result<u64, SessionError> {
        let mut table = self.table();
        match expected_revision {
            0 => table.append_first(key, event)?,
            revision => table.append(key, revision, event)?,
        }
        let revision = table.revision(key);
        table.evict();
        Ok(revision)
    }

    pub(crate) fn end_turn(&self, key: &SessionKey) {
        let mut table = self.table();
        table.end_turn(key);
        table.evict();
    }

    pub(crate) fn merged_state(&self, key: &SessionKey) -> State {
        self.table().merged_state(key)
    }

    pub(crate) fn session_state(&self, key: &SessionKey) -> State {
        self.table().session_state(key)
    }

    pub(crate) fn value(&self, key: &SessionKey, full_key: &str) -> Option<Json> {
        self.table().value(key, full_key)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock was held is a bug in this crate; the other sessions are still worth serving.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what a change made of a session, and only then makes room, so that the answer is right even if the session
/// is the one that has to go.
fn finish(table: &mut Table, key: &SessionKey) -> Result<Session, SessionError> {
    let session = table.session(key).ok_or_else(|| key.not_found())?;
    table.evict();
    Ok(session)
}
