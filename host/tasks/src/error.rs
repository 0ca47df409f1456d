//! Errors of stored tasks. After any of these nothing of the failing call is stored, unless it says so.

use std::path::PathBuf;

use annex_database::OpenError;
use annex_protocol::TaskId;

use crate::Excess;

/// The reason why a store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The task does not exist, or was swept during the call.
    #[error("task {task} is not stored")]
    NotFound {
        /// The task that was to be changed.
        task: TaskId,
    },
    /// A task of this id exists already, be it another owner's.
    #[error("task {task} is stored already")]
    AlreadyExists {
        /// The task that was to be created.
        task: TaskId,
    },
    /// Another writer appended after this writer's last event.
    #[error("stale writer: expected event {expected} to be the last, found {found}")]
    Stale {
        /// The event that the writer believed to be the last.
        expected: u64,
        /// The number of the last event.
        found: u64,
    },
    /// Another turn or another process owns the task now, or may own it soon. The earlier writer must write nothing
    /// more.
    #[error("task {task} is another turn's or another process's by now")]
    Fenced {
        /// The task that was to be created or changed.
        task: TaskId,
    },
    /// A key cannot be stored: the text is longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), contains a NUL
    /// character, or is empty although it is a name. The author of the text is at fault.
    #[error("the {field} is empty, too long or contains a NUL character")]
    InvalidKey {
        /// The kind of text, such as `context id`.
        field: &'static str,
    },
    /// The task has as many push notification configs as a task may have.
    #[error("the task has {limit} push notification configs already")]
    TooManyConfigs {
        /// The largest allowed number of configs of one task.
        limit: usize,
    },
    /// The memory store is full of tasks that must stay, or the running tasks of an owner use the owner's whole share.
    #[error("the task store is full")]
    Full,
    /// The task exceeds a limit. Stores never return this error; the code that appends checks the limits.
    #[error("the task has {excess}")]
    TooLarge {
        /// The exceeded limit.
        excess: Excess,
    },
    /// The stored task has a form that this version of the software does not write.
    #[error("task {task} is stored in a form that cannot be read")]
    Unreadable {
        /// The task.
        task: TaskId,
        /// The error in its JSON.
        source: serde_json::Error,
    },
    /// A value could not be encoded as JSON.
    #[error("a value cannot be encoded")]
    Encoding(#[from] serde_json::Error),
    /// The database file cannot be created, or not written.
    #[error(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The tables cannot be brought to the form that this version of the software uses.
    #[error("the database cannot be migrated")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database failed. A change that was in progress may have been stored or not, but never in part.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::File { path, source } => Self::File { path, source },
            OpenError::Migration(source) => Self::Migration(source),
            OpenError::Database(source) => Self::Database(source),
        }
    }
}
