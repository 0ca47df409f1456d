//! Stores to test, and tasks to put into them.

use std::future::Future;
use std::sync::Arc;

use annex_protocol::{Owner, StreamResponse, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp};
use annex_tasks::{
    Creator, MemoryBounds, MemoryTaskStore, Place, PostgresTaskStore, SqliteTaskStore, StoreError, StoredEvent,
    TaskEvent, TaskStore, WaitingBounds,
};
use tempfile::TempDir;

use crate::cluster::Scratch;

pub(crate) type Store = Arc<dyn TaskStore>;

/// Stores one event at a time.
pub(crate) trait OneByOne: TaskStore {
    /// A task that is its own first event.
    fn begin(&self, owner: &Owner, task: &Task) -> impl Future<Output = Result<(), StoreError>> + Send {
        let events = [StreamResponse::Task(task.clone()).into()];
        async move { self.create(owner, &events, &task.clone().into(), Creator::default()).await.map(drop) }
    }

    fn add(
        &self,
        id: &TaskId,
        expected: u64,
        event: &TaskEvent,
        task: &Task,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async move {
            let place = Place::after(expected);
            self.append(id, &place, std::slice::from_ref(event), &task.clone().into()).await.map(|place| place.seq)
        }
    }
}

impl<S: TaskStore + ?Sized> OneByOne for S {}

pub(crate) async fn on_memory<F: Future<Output = ()>>(case: impl FnOnce(Store) -> F) {
    let bounds = MemoryBounds { max_tasks: 10_000, max_bytes: 64 << 20, waiting: WaitingBounds::UNBOUNDED };
    case(Arc::new(MemoryTaskStore::new(bounds))).await;
}

pub(crate) async fn on_sqlite<F: Future<Output = ()>>(case: impl FnOnce(Store) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteTaskStore::open(&folder.path().join("tasks.db")).await.unwrap());
    case(store).await;
}

/// Passes, loudly, where there is no PostgreSQL.
pub(crate) async fn on_postgres<F: Future<Output = ()> + Send + 'static>(case: impl FnOnce(Store) -> F) {
    let Some(scratch) = Scratch::create().await else { return };
    let store = Arc::new(PostgresTaskStore::connect(scratch.url(), 8).await.unwrap());
    let outcome = tokio::spawn(case(store)).await;
    scratch.remove().await;
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure.into_panic());
    }
}

/// A place where a store is opened again and again, as by processes that follow each other.
pub(crate) enum Restart {
    Sqlite(TempDir),
    Postgres(Scratch),
}

impl Restart {
    pub(crate) fn in_sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// `None`, after saying so, where there is no PostgreSQL.
    pub(crate) async fn in_postgres() -> Option<Self> {
        Scratch::create().await.map(Self::Postgres)
    }

    pub(crate) async fn open(&self) -> Store {
        match self {
            Self::Sqlite(folder) => Arc::new(SqliteTaskStore::open(&folder.path().join("tasks.db")).await.unwrap()),
            Self::Postgres(scratch) => Arc::new(PostgresTaskStore::connect(scratch.url(), 4).await.unwrap()),
        }
    }

    /// The store of the next process, when the one with `store` has stopped.
    pub(crate) async fn after(&self, store: Store) -> Store {
        store.close().await;
        self.open().await
    }

    pub(crate) async fn remove(self) {
        if let Self::Postgres(scratch) = self {
            scratch.remove().await;
        }
    }
}

pub(crate) fn owner(principal: &str) -> Owner {
    Owner { tenant: "acme".to_owned(), principal: principal.to_owned() }
}

pub(crate) fn at(millis: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millis(millis))
}

/// A task in context `c-1`.
pub(crate) fn task(id: &str, state: TaskState, timestamp: Option<Timestamp>) -> Task {
    let status = TaskStatus { state, message: None, timestamp };
    Task { id: id.into(), context_id: "c-1".into(), status, ..Task::default() }
}

pub(crate) fn working(id: &str) -> Task {
    task(id, TaskState::Working, at(1_000))
}

/// Brings `task` into another state, and the event that says so.
pub(crate) fn change(task: &mut Task, state: TaskState, timestamp: Option<Timestamp>) -> TaskEvent {
    let event = TaskStatusUpdateEvent {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: TaskStatus { state, message: None, timestamp },
        ..TaskStatusUpdateEvent::default()
    };
    task.apply_status(&event);
    StreamResponse::StatusUpdate(event).into()
}

pub(crate) fn numbers(events: &[StoredEvent]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

/// The JSON that serde makes of an event that readers are shown.
pub(crate) fn encoded(event: &TaskEvent) -> String {
    match event {
        TaskEvent::Stream(event) => serde_json::to_string(&**event).unwrap(),
        TaskEvent::Message(_) => panic!("readers are not shown messages"),
    }
}
