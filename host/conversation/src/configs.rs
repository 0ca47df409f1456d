//! The receivers of push notifications of tasks.

use annex_protocol::{TaskId, TaskPushNotificationConfig};
use async_trait::async_trait;

use crate::cursors::PushCursors;
use crate::error::{AppendError, StoreError};
use crate::page::ConfigPage;

/// The limit on the push notification configs of one task.
pub const MAX_PUSH_CONFIGS: usize = 100;

/// Stores the receivers of push notifications of tasks. The configs of a task are deleted with the task.
#[async_trait]
pub trait ConfigStore: Send + Sync + 'static {
    /// Stores a config under its id and replaces an older config of that id. Credentials are stored in clear text, because
    /// the sender needs them.
    ///
    /// # Errors
    /// [`ConfigError`].
    async fn put_config(&self, task: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), ConfigError>;

    /// One config of a task; `None` when the task or the config does not exist.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn config(&self, task: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError>;

    /// One page of the configs of a task: at most `limit` configs whose ids come after `after`. An empty `after` starts
    /// at the first config.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn configs(&self, task: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError>;

    /// Deletes a config. Deleting it twice is no error.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete_config(&self, task: &TaskId, config: &str) -> Result<(), StoreError>;

    /// The progress of push notifications. `None` if no other process shares the store, because a single process knows
    /// its own progress.
    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        None
    }
}

/// The reason why a push notification config is not stored.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The task already has the largest number of configs.
    #[error("the task has {limit} push notification configs already")]
    TooMany {
        /// The limit for one task.
        limit: usize,
    },
    /// The config cannot be stored for another reason.
    #[error(transparent)]
    Append(#[from] AppendError),
}
