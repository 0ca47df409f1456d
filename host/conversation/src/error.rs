//! The errors of this crate. A failed call has stored nothing.

use annex_protocol::TaskId;

use crate::excess::Excess;
use crate::key::InvalidName;

/// The reason why a write was refused: a claim, an entrance into the queue, or entries.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The writer has lost the right to write: another turn or another process works on the conversation or the task, or
    /// the lease of the writer has ended. The writer must not try again.
    #[error("another turn or another process works on this by now")]
    Fenced,
    /// Another writer was first. The writer reads the new entries and tries again.
    #[error("the writer has seen {expected} entries, and {found} are stored")]
    Stale {
        /// The number of the last entry that the writer had seen.
        expected: u64,
        /// The number of the last entry that is stored.
        found: u64,
    },
    /// The conversation or the task was deleted.
    #[error("the conversation or the task is not stored")]
    Missing,
    /// The entries would make something larger than it may be.
    #[error(transparent)]
    TooLarge(#[from] Excess),
    /// A name or an id cannot be stored.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The memory store has no room, or the running turns of one owner fill their share.
    #[error("the store is full")]
    Full,
    /// Too many turns wait in this conversation.
    #[error("{waiting} turns are waiting in this context already")]
    QueueFull {
        /// The number of turns that wait, which is also the limit.
        waiting: usize,
    },
    /// The store failed, or its content cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The stored JSON has a form that this version of the software does not write.
    #[error("{what} is stored in a form that cannot be read")]
    Unreadable {
        /// The kind of thing and its id, for example `task t-1`.
        what: String,
        /// The error in its JSON.
        source: serde_json::Error,
    },
    /// A value could not be encoded as JSON.
    #[error("a value cannot be encoded")]
    Encoding(#[from] serde_json::Error),
    /// The database failed. The change was stored in whole or not at all.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// The JSON of a task cannot be read.
    pub(crate) fn unreadable_task(task: &TaskId, source: serde_json::Error) -> Self {
        Self::Unreadable { what: format!("task {task}"), source }
    }
}

impl From<sqlx::Error> for AppendError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
