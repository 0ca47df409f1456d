//! Stores to test, and short helpers for the tests.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use annex_protocol::{Part, Timestamp};
use annex_session::{
    Appended, Beginning, Bounds, Event, EventFilter, InMemorySessionService, Limits, PostgresSessionService, Session,
    SessionError, SessionKey, SessionQuery, SessionService, SqliteSessionService, StateDelta, TurnSession, Turns,
};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::runtime::Handle;

use crate::cluster::Scratch;
use crate::table;

pub(crate) type Store = Arc<dyn SessionService>;

/// The place where the sessions of one case are.
#[derive(Clone)]
pub(crate) enum Backend {
    Memory,
    Sqlite(PathBuf),
    Postgres(String),
    /// A PostgreSQL database that other processes share; this process has a lease.
    AmongOthers(String),
}

impl Backend {
    pub(crate) async fn service(&self) -> Store {
        self.within(Limits::default()).await
    }

    /// Another service on the same sessions, except in memory.
    pub(crate) async fn within(&self, limits: Limits) -> Store {
        let backend = self.clone();
        let runtime = Handle::current();
        // On a thread of its own: sqlx's migrations are no future that can be sent.
        tokio::task::spawn_blocking(move || runtime.block_on(backend.open(limits))).await.unwrap()
    }

    async fn open(self, limits: Limits) -> Store {
        match self {
            Self::Memory => memory(Bounds { limits, ..Bounds::default() }),
            Self::Sqlite(file) => Arc::new(SqliteSessionService::open(&file, limits).await.unwrap()),
            Self::Postgres(url) => Arc::new(PostgresSessionService::connect(&url, 8, limits).await.unwrap()),
            Self::AmongOthers(url) => {
                let service = PostgresSessionService::connect(&url, 8, limits).await.unwrap();
                Arc::new(service.among_others(|| "one".into()))
            }
        }
    }
}

/// Waits until the clock shows the next millisecond: stores keep times in milliseconds.
pub(crate) async fn next_millisecond() {
    let now = Timestamp::now();
    while Timestamp::now() == now {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn memory(bounds: Bounds) -> Store {
    Arc::new(InMemorySessionService::new(bounds))
}

pub(crate) async fn on_memory<F: Future<Output = ()>>(case: impl FnOnce(Backend) -> F) {
    case(Backend::Memory).await;
}

pub(crate) async fn on_sqlite<F: Future<Output = ()>>(case: impl FnOnce(Backend) -> F) {
    let folder = tempfile::tempdir().unwrap();
    case(Backend::Sqlite(folder.path().join("sessions.db"))).await;
}

/// Passes, loudly, where there is no PostgreSQL.
pub(crate) async fn on_postgres<F: Future<Output = ()> + Send + 'static>(case: impl FnOnce(Backend) -> F) {
    let Some(scratch) = Scratch::create().await else { return };
    let outcome = tokio::spawn(case(Backend::Postgres(scratch.url().to_owned()))).await;
    scratch.remove().await;
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure.into_panic());
    }
}

/// Like [`on_postgres`], in a process that has a lease.
pub(crate) async fn among_others<F: Future<Output = ()> + Send + 'static>(case: impl FnOnce(Backend) -> F) {
    let Some(scratch) = Scratch::create().await else { return };
    let mut database = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::raw_sql(table::CREATE).execute(&mut database).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(table::endless("one"))).execute(&mut database).await.unwrap();
    database.close().await.unwrap();
    let outcome = tokio::spawn(case(Backend::AmongOthers(scratch.url().to_owned()))).await;
    scratch.remove().await;
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure.into_panic());
    }
}

/// A key from `tenant/app/user/context`. A name missing on the left is `-`.
pub(crate) fn key(path: &str) -> SessionKey {
    let mut names = path.rsplit('/').chain(std::iter::repeat("-"));
    let mut next = || names.next().unwrap();
    let context = next();
    let user = next();
    let app = next();
    let tenant = next();
    SessionKey::new(tenant, app, user, context)
}

pub(crate) fn delta(json: &str) -> StateDelta {
    StateDelta::parse(json).unwrap()
}

pub(crate) fn event(id: &str, state_delta: &str) -> Event {
    event_at(id, 1_000, state_delta)
}

pub(crate) fn event_at(id: &str, millis: i64, state_delta: &str) -> Event {
    let parts = vec![Part::text(format!("text of {id}"))];
    let timestamp = Timestamp::from_millis(millis);
    Event { id: id.to_owned(), timestamp, ..Event::new("agent", "turn", parts, delta(state_delta)) }
}

pub(crate) async fn create(service: &Store, path: &str, initial: &str) -> Session {
    service.create(&key(path), delta(initial)).await.unwrap()
}

/// Appends one event.
pub(crate) async fn add(service: &Store, path: &str, expected: u64, event: Event) -> Result<Appended, SessionError> {
    service.append(&key(path), expected, vec![event]).await
}

pub(crate) async fn find(service: &Store, path: &str) -> Option<Session> {
    service.get(&key(path), EventFilter::NONE).await.unwrap()
}

/// The merged state that a session of this key reads, as JSON.
pub(crate) async fn state_of(service: &Store, path: &str) -> String {
    find(service, path).await.expect("the session exists").state.merged().to_json_string()
}

pub(crate) async fn events(service: &Store, path: &str) -> Vec<Arc<Event>> {
    service.read(&key(path), EventFilter::ALL).await.unwrap().events
}

pub(crate) fn ids(events: &[Arc<Event>]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_str()).collect()
}

/// The sessions of `-/-` and of one user, or of all.
pub(crate) fn query(user: Option<&str>) -> SessionQuery {
    let tenant = "-".to_owned();
    let app = "-".to_owned();
    SessionQuery { tenant, app, user: user.map(str::to_owned), after: None, limit: 1_000 }
}

pub(crate) async fn open(service: &Store, path: &str) -> TurnSession {
    TurnSession::open(service, key(path), &Turns::default(), beginning(service)).await.unwrap()
}

/// A turn that comes now.
pub(crate) fn beginning(service: &Store) -> Beginning {
    Beginning { place: service.place(), history: 0 }
}

/// The text of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, SessionError>) -> String {
    result.unwrap_err().to_string()
}
