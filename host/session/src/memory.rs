//! The session service that keeps everything in memory: fast, bounded, and empty after a restart.

use std::sync::{Mutex, MutexGuard, PoisonError};

use annex_protocol::ContextId;
use async_trait::async_trait;

use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::limits::Limits;
use crate::service::{Appended, Holdings, Retention, SessionQuery, SessionService, StoredArtifact};
use crate::session::{Session, SessionKey};
use crate::state::StateDelta;
use crate::table::Table;

/// Bounds on the content of the service.
///
/// Beyond `max_sessions` or `max_bytes` the least recently used session is dropped, with its events. `user:` and `app:`
/// maps count as bytes too and are dropped in the same order, which means after the last session that shares a map. A
/// session with a running turn is never dropped, so running turns can exceed both bounds for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most sessions to hold. Default: 10 000.
    pub max_sessions: usize,
    /// The most memory to use for states and events, in bytes, roughly counted. Default: 256 MiB.
    pub max_bytes: usize,
    /// The limits on one session.
    pub limits: Limits,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { max_sessions: 10_000, max_bytes: 256 * 1024 * 1024, limits: Limits::default() }
    }
}

/// Sessions in memory. Its methods wait for nothing but the table, which is locked for a few microseconds.
pub struct InMemorySessionService {
    limits: Limits,
    table: Mutex<Table>,
}

impl InMemorySessionService {
    /// An empty service.
    pub fn new(bounds: Bounds) -> Self {
        Self { limits: bounds.limits, table: Mutex::new(Table::new(bounds)) }
    }

    /// Changes the table. Evicted slots are dropped after the table is unlocked, so that other callers do not wait for
    /// the drop.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let changed = change(&mut table);
        let evicted = table.evict();
        drop(table);
        drop(evicted);
        changed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock was held is a bug in this crate; the other sessions are still worth serving.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SessionService for InMemorySessionService {
    async fn create(&self, key: &SessionKey, mut initial: StateDelta) -> Result<Session, SessionError> {
        initial.take_temp();
        self.change(|table| {
            table.create(key, &initial)?;
            // Before room is made: the answer must be right even if this session is the one that has to go.
            Ok(table.session(key, EventFilter::NONE))
        })
    }

    async fn read(&self, key: &SessionKey, filter: EventFilter) -> Result<Session, SessionError> {
        let mut table = self.table();
        // To read a session is to use it, so that it is evicted later.
        table.touch(key);
        Ok(table.session(key, filter))
    }

    async fn exists(&self, key: &SessionKey) -> Result<bool, SessionError> {
        // Without `touch`: a session that is only asked about is not kept from eviction.
        Ok(self.table().revision(key) != 0)
    }

    async fn list(&self, query: &SessionQuery) -> Result<Vec<Session>, SessionError> {
        Ok(self.table().list(query))
    }

    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, SessionError> {
        Ok(self.table().users_in((tenant, app, context), limit))
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, SessionError> {
        Ok(self.table().delete(key))
    }

    async fn delete_key(&self, owner: &SessionKey, full_key: &str) -> Result<bool, SessionError> {
        Ok(self.table().delete_key(owner, full_key))
    }

    async fn delete_user_state(&self, owner: &SessionKey) -> Result<u64, SessionError> {
        Ok(self.table().delete_user_state(owner))
    }

    async fn append(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        events: Vec<Event>,
    ) -> Result<Appended, SessionError> {
        self.change(|table| table.append(key, expected_revision, events))
    }

    async fn artifact(&self, key: &SessionKey, name: &str) -> Result<Option<StoredArtifact>, SessionError> {
        Ok(self.table().artifact(key, name))
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, SessionError> {
        Ok(self.table().sweep(retention))
    }

    async fn holdings(&self, tenant: &str) -> Result<Holdings, SessionError> {
        Ok(self.table().holdings(tenant))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn begin_turn(&self, key: &SessionKey) {
        self.table().begin_turn(key);
    }

    fn end_turn(&self, key: &SessionKey) {
        self.change(|table| table.end_turn(key));
    }
}
