//! The versions of extensions that waiting tasks go on with.

use annex_protocol::{ExtensionUri, Owner, TaskId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// What a waiting task goes on with, and what made it wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskPins {
    /// The versions that worked on it.
    pub versions: Vec<PinnedVersion>,
    /// Says that an extension made it wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
}

/// One version of one extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedVersion {
    /// The extension.
    pub uri: ExtensionUri,
    /// A digest of its component.
    pub digest: String,
    /// A digest of what the operator decided about it.
    pub settings: String,
}

/// The reason why a task waits, when an extension made it wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// The extension, which alone may take the task up again.
    pub by: ExtensionUri,
    /// The extensions that the client asked for, with those that were active although it did not.
    pub requested: Vec<ExtensionUri>,
    /// The number that tells it from other interruptions of the task; a database has no larger ones than [`i64::MAX`].
    pub number: u64,
}

/// Keeps pins with the tasks, for all processes that work on them and those that come after.
#[async_trait]
pub trait PinStore: Send + Sync {
    /// Keeps the pins of a task, which may be stored a moment later, in place of those that it had.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn keep(&self, task: &TaskId, pins: &TaskPins) -> Result<(), StoreError>;

    /// The pins of a task that is not finished, and its owner. An interruption that was ended is left out.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Unreadable`].
    async fn find(&self, task: &TaskId) -> Result<Option<(Owner, TaskPins)>, StoreError>;

    /// Ends the interruption of that number. Of any number of callers at once, one is told `true`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn end_interruption(&self, task: &TaskId, number: u64) -> Result<bool, StoreError>;
}
