//! The receivers of push notifications of tasks.

use annex_protocol::{TaskId, TaskPushNotificationConfig};
use async_trait::async_trait;

use crate::error::{AppendError, StoreError};
use crate::page::ConfigPage;

/// The most push notification configs that one task may have.
pub const MAX_PUSH_CONFIGS: usize = 100;

/// The receivers of push notifications of tasks. Their configs go with their task.
#[async_trait]
pub trait ConfigStore: Send + Sync + 'static {
    /// Stores a config under its id, in place of one that is there. Its credentials are stored in clear, because they are to
    /// be sent.
    ///
    /// # Errors
    /// [`ConfigError`].
    async fn put_config(&self, task: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), ConfigError>;

    /// One config of a task; `None` when there is no such task or config.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn config(&self, task: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError>;

    /// At most `limit` configs of a task whose ids come after `after`; an empty `after` starts at the first.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn configs(&self, task: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError>;

    /// Deletes a config. Deleting it twice is no error.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete_config(&self, task: &TaskId, config: &str) -> Result<(), StoreError>;
}

/// The reason why a push notification config is not stored.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The task has as many configs as a task may have.
    #[error("the task has {limit} push notification configs already")]
    TooMany {
        /// The most that one task may have.
        limit: usize,
    },
    /// The config cannot be stored for another reason.
    #[error(transparent)]
    Append(#[from] AppendError),
}
