//! Errors of stored tasks. After any of these nothing of the failing call is stored, unless it says so.

use std::path::PathBuf;

use annex_database::OpenError;
use annex_protocol::TaskId;

use crate::Excess;

/// The reason why a store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such task, or it was swept meanwhile.
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
    /// Somebody else appended since the writer last did.
    #[error("stale writer: expected event {expected} to be the last, found {found}")]
    Stale {
        /// The event that the writer believed to be the last.
        expected: u64,
        /// The event that is the last.
        found: u64,
    },
    /// The task is another turn's by now, or another process has taken it or may do so. Whoever wrote for the earlier one writes
    /// nothing more.
    #[error("task {task} is another turn's or another process's by now")]
    Fenced {
        /// The task that was to be created or changed.
        task: TaskId,
    },
    /// A text that things are found by cannot be stored: it is longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES) or
    /// contains a NUL character, or it is empty where it names something. The fault of whoever made up the text.
    #[error("the {field} is empty, too long or contains a NUL character")]
    InvalidKey {
        /// The kind of text, such as `context id`.
        field: &'static str,
    },
    /// The task has as many push notification configs as a task may have.
    #[error("the task has {limit} push notification configs already")]
    TooManyConfigs {
        /// The most that one task may have.
        limit: usize,
    },
    /// The memory store is full of tasks that must stay, or an owner's running tasks have all that they may have of it.
    #[error("the task store is full")]
    Full,
    /// A task has more than it may have. No store says so: whoever appends checks it.
    #[error("the task has {excess}")]
    TooLarge {
        /// The limit that it exceeds.
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
    /// The database failed. A change that was under way may have been stored or not, but never half of it.
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
