//! The task store that the config names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use annex_leases::Lease;
use annex_operations::tasks::others::STOPPED;
use annex_tasks::{
    MemoryBounds, MemoryTaskStore, PostgresTaskStore, Retention, SqliteTaskStore, StoreError, TaskLimits, TaskStore,
    WaitingBounds,
};

use crate::config::{Config, TasksConfig};
use crate::stores;
use crate::stores::place::{self, NoVariable};
use crate::stores::postgres::PostgresDatabases;

/// The file in the config's folder for data.
const FILE: &str = "tasks.sqlite";

/// The reasons for which there is no task store.
#[derive(Debug, thiserror::Error)]
pub enum TaskStoreError {
    /// The folder cannot be made.
    #[error("tasks.data_dir: cannot create {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The environment has no URL of a database.
    #[error(transparent)]
    Variable(#[from] NoVariable),
    /// The environment has no name of this process.
    #[error("{key}: {reason}")]
    Replica {
        /// The key of the config.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The store was opening when the process ended.
    #[error("opening the task store broke off")]
    Aborted,
    /// The store does not open.
    #[error("the task store cannot be opened")]
    Open(#[from] StoreError),
}

/// The task store, and what goes with it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn TaskStore>,
    /// The lease of this process in the database of the tasks; `None` where no other process can have them. Closing the
    /// store ends it.
    pub(crate) lease: Option<Arc<Lease>>,
}

impl Opened {
    fn alone(store: impl TaskStore) -> Self {
        Self { store: Arc::new(store), lease: None }
    }
}

/// Opens the store and fails what a process that is gone has left.
pub(crate) async fn open(
    config: &Config,
    folder: &Path,
    databases: &PostgresDatabases,
) -> Result<Opened, TaskStoreError> {
    let replica = config.replica.name().map_err(|(key, reason)| TaskStoreError::Replica { key, reason })?;
    let config = config.tasks.clone();
    let folder = folder.to_owned();
    let databases = databases.clone();
    let opening =
        stores::on_own_thread(
            move || async move { open_store(&config, replica.as_deref(), &folder, &databases).await },
        );
    opening.await.map_err(|_| TaskStoreError::Aborted)?
}

async fn open_store(
    config: &TasksConfig,
    replica: Option<&str>,
    folder: &Path,
    databases: &PostgresDatabases,
) -> Result<Opened, TaskStoreError> {
    let opened = if let Some(data) = &config.data_dir {
        let path = folder.join(data);
        std::fs::create_dir_all(&path).map_err(|source| TaskStoreError::Folder { path: path.clone(), source })?;
        Opened::alone(SqliteTaskStore::open(&path.join(FILE)).await?)
    } else if let Some(name) = &config.postgres_env {
        let url = place::url("tasks.postgres_env", name.clone())?;
        let store = PostgresTaskStore::open_as(replica, &databases.at(&url).map_err(StoreError::from)?).await?;
        let lease = store.lease();
        Opened { store: Arc::new(store), lease }
    } else {
        let max_tasks = config.max_tasks;
        let max_bytes = config.max_bytes;
        let waiting = waiting(config);
        let bounds = MemoryBounds { max_tasks, max_bytes, waiting };
        // Nothing in memory outlived the last process, so there is nothing to recover.
        return Ok(Opened::alone(MemoryTaskStore::new(bounds)));
    };
    let recovered = opened.store.recover(STOPPED).await?;
    if !recovered.is_empty() {
        tracing::warn!(tasks = recovered.len(), "tasks ran when the server stopped; they are failed");
    }
    Ok(opened)
}

const DAY: u64 = 24 * 60 * 60;

/// The largest size of one task.
pub(crate) fn limits(config: &TasksConfig) -> TaskLimits {
    TaskLimits {
        bytes: config.max_task_bytes,
        messages: config.max_task_messages,
        artifacts: config.max_task_artifacts,
    }
}

/// The longest time that tasks may wait for their clients, and how many may.
pub(crate) fn waiting(config: &TasksConfig) -> WaitingBounds {
    let age = Duration::from_secs(config.keep_waiting_days.saturating_mul(DAY));
    WaitingBounds { age, per_owner: config.max_waiting_per_caller, anonymous: config.max_tasks }
}

pub(crate) fn retention(config: &TasksConfig) -> Retention {
    Retention { age: Duration::from_secs(config.keep_days.saturating_mul(DAY)), count: config.keep_count }
}
