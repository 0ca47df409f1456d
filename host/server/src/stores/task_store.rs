//! Opens the task store that the config names.

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

/// The file name in the data folder.
const FILE: &str = "tasks.sqlite";

/// The reasons why the task store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TaskStoreError {
    /// The data folder cannot be created.
    #[error("tasks.data_dir: cannot create {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The environment variable with the URL is not set.
    #[error(transparent)]
    Variable(#[from] NoVariable),
    /// The name of this process cannot be read from the environment.
    #[error("{key}: {reason}")]
    Replica {
        /// The key of the config.
        key: &'static str,
        /// The fault of the key's value.
        reason: String,
    },
    /// The process ended while the store was opened.
    #[error("opening the task store broke off")]
    Aborted,
    /// The store cannot be opened.
    #[error("the task store cannot be opened")]
    Open(#[from] StoreError),
}

/// An open task store and its lease.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn TaskStore>,
    /// The lease of this process. `None` for a store that only one process can use. Closing the store ends the lease.
    pub(crate) lease: Option<Arc<Lease>>,
}

impl Opened {
    fn alone(store: impl TaskStore) -> Self {
        Self { store: Arc::new(store), lease: None }
    }
}

/// Opens the store and fails the tasks that a process left running when it ended.
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
        // A store in memory starts empty, so there is nothing to recover.
        return Ok(Opened::alone(MemoryTaskStore::new(bounds)));
    };
    let recovered = opened.store.recover(STOPPED).await?;
    if !recovered.is_empty() {
        tracing::warn!(tasks = recovered.len(), "failed the tasks that ran when the server stopped");
    }
    Ok(opened)
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

/// The bounds on the age and the number of tasks that wait for their clients.
pub(crate) fn waiting(config: &TasksConfig) -> WaitingBounds {
    let age = Duration::from_secs(config.keep_waiting_days.saturating_mul(DAY));
    WaitingBounds { age, per_owner: config.max_waiting_per_caller, anonymous: config.max_tasks }
}

pub(crate) fn retention(config: &TasksConfig) -> Retention {
    Retention { age: Duration::from_secs(config.keep_days.saturating_mul(DAY)), count: config.keep_count }
}
