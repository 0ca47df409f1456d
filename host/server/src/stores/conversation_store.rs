//! Opens the store of conversations and tasks that the config names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annex_conversation::{
    Keep, Limits, MemoryBounds, MemoryStore, OpenError, PostgresStore, Replica, Retention, SqliteStore, Store,
    TaskLimits, WaitingBounds,
};
use annex_leases::Lease;
use annex_operations::process::Process;

use crate::config::{Config, SessionsConfig, TasksConfig};
use crate::stores;
use crate::stores::place::{self, PlaceError, StorePlace};
use crate::stores::postgres::PostgresDatabases;

/// The name of the store's file in the data folder.
const FILE: &str = "conversations.sqlite";

/// The reasons why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConversationStoreError {
    /// The folder or database of the store cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The name of this process cannot be read from the environment.
    #[error("{key}: {reason}")]
    Replica {
        /// The config key that is at fault.
        key: &'static str,
        /// The reason why the value of the key cannot be used.
        reason: String,
    },
    /// The process ended while the store was opened.
    #[error("opening the store of conversations and tasks broke off")]
    Aborted,
    /// The store cannot be opened.
    #[error("the store of conversations and tasks cannot be opened")]
    Open(#[from] OpenError),
}

/// An open store, with the identity of this process in the store.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) process: Process,
    /// The lease of this process. `None` for a store that only one process can use.
    pub(crate) lease: Option<Arc<Lease>>,
}

/// Opens the store. Relative paths of the config start at `folder`.
pub(crate) async fn open(
    config: &Config,
    folder: &Path,
    databases: &PostgresDatabases,
) -> Result<Opened, ConversationStoreError> {
    let name = config.replica.name().map_err(|(key, reason)| ConversationStoreError::Replica { key, reason })?;
    let (place, bounds, databases) = (StorePlace::of_tasks(&config.tasks, folder), bounds(config), databases.clone());
    let opening = stores::on_own_thread(move || open_store(place, bounds, databases, name));
    opening.await.map_err(|_| ConversationStoreError::Aborted)?
}

async fn open_store(
    place: StorePlace,
    bounds: MemoryBounds,
    databases: PostgresDatabases,
    name: Option<String>,
) -> Result<Opened, ConversationStoreError> {
    Ok(match place {
        StorePlace::Folder(key, path) => {
            let file = place::file(key, &path, FILE)?;
            let replica = Replica::alone();
            let store = Arc::new(SqliteStore::open(&file, Some(&replica), bounds.limits).await?);
            Opened { store, process: Process::with_file(replica), lease: None }
        }
        StorePlace::Postgres(key, variable) => {
            let connections = databases.at(&place::url(key, variable).map_err(PlaceError::from)?)?;
            // The lease makes the table that the statements of the store name.
            let lease = Arc::new(Lease::open(&connections, name.as_deref()).await?);
            let store = Arc::new(PostgresStore::open(&connections, bounds.limits).await?);
            Opened { store, process: Process::among_others(Arc::clone(&lease)), lease: Some(lease) }
        }
        StorePlace::Memory => {
            Opened { store: Arc::new(MemoryStore::new(bounds)), process: Process::with_memory(), lease: None }
        }
    })
}

/// Opens the store for a program that only reads and deletes. A server may use the store at the same time. The opened
/// store cannot run turns.
pub(crate) async fn open_beside(
    config: &Config,
    folder: &Path,
    databases: &PostgresDatabases,
) -> Result<Arc<dyn Store>, ConversationStoreError> {
    let (place, bounds, databases) = (StorePlace::of_tasks(&config.tasks, folder), bounds(config), databases.clone());
    let opening = stores::on_own_thread(move || open_store_beside(place, bounds, databases));
    opening.await.map_err(|_| ConversationStoreError::Aborted)?
}

async fn open_store_beside(
    place: StorePlace,
    bounds: MemoryBounds,
    databases: PostgresDatabases,
) -> Result<Arc<dyn Store>, ConversationStoreError> {
    Ok(match place {
        StorePlace::Folder(key, path) => {
            Arc::new(SqliteStore::open(&place::file(key, &path, FILE)?, None, bounds.limits).await?)
        }
        StorePlace::Postgres(key, variable) => Arc::new(
            PostgresStore::open(&databases.at(&place::url(key, variable).map_err(PlaceError::from)?)?, bounds.limits)
                .await?,
        ),
        StorePlace::Memory => Arc::new(MemoryStore::new(bounds)),
    })
}

fn bounds(config: &Config) -> MemoryBounds {
    let (sessions, tasks) = (&config.sessions, &config.tasks);
    MemoryBounds {
        max_conversations: sessions.max_sessions,
        max_conversation_bytes: sessions.max_bytes,
        max_tasks: tasks.max_tasks,
        max_task_bytes: tasks.max_bytes,
        waiting: waiting(tasks),
        limits: Limits {
            state_bytes: sessions.max_state_bytes,
            state_keys: sessions.max_state_keys,
            state_depth: sessions.max_state_depth,
            events: sessions.max_events,
            artifacts: sessions.max_artifacts,
            artifact_bytes: sessions.max_artifact_bytes,
            null_removes: sessions.null_removes,
        },
    }
}

const DAY: u64 = 24 * 60 * 60;

/// The size limits of one task.
pub(crate) fn limits(config: &TasksConfig) -> TaskLimits {
    TaskLimits {
        bytes: config.max_task_bytes,
        messages: config.max_task_messages,
        artifacts: config.max_task_artifacts,
    }
}

/// The limits on the age and the number of tasks that wait for their clients.
fn waiting(config: &TasksConfig) -> WaitingBounds {
    WaitingBounds {
        age: days(config.keep_waiting_days),
        per_owner: config.max_waiting_per_caller,
        anonymous: config.max_tasks,
    }
}

/// The limits on the age and the number of stored conversations and tasks.
pub(crate) fn retention(sessions: &SessionsConfig, tasks: &TasksConfig) -> Retention {
    Retention {
        conversations: Keep { age: days(sessions.keep_days), count: sessions.keep_count },
        tasks: Keep { age: days(tasks.keep_days), count: tasks.keep_count },
        waiting: waiting(tasks),
    }
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days.saturating_mul(DAY))
}
