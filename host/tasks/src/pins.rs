//! The extension versions that waiting tasks keep.

use annex_protocol::{ExtensionUri, Owner, TaskId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The extension versions for a waiting task, and the extension that interrupted the task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskPins {
    /// The versions that the task began with.
    pub versions: Vec<PinnedVersion>,
    /// Set if an extension made the task wait.
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
    /// A digest of the operator's settings for the extension.
    pub settings: String,
}

/// The reason why a task waits, when an extension made it wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// The extension, which alone may take the task up again.
    pub by: ExtensionUri,
    /// The extensions that the client requested, and those that were active without a request.
    pub requested: Vec<ExtensionUri>,
    /// The number of this interruption, unique among the interruptions of the task. At most [`i64::MAX`], the largest
    /// number in a database.
    pub number: u64,
}

/// Keeps pins with the tasks, for all processes that work on a task, now or later.
#[async_trait]
pub trait PinStore: Send + Sync {
    /// Replaces the pins of a task. The task itself may be stored a moment later.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn keep(&self, task: &TaskId, pins: &TaskPins) -> Result<(), StoreError>;

    /// The pins of an unfinished task, and its owner. An interruption that has ended is omitted.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Unreadable`].
    async fn find(&self, task: &TaskId) -> Result<Option<(Owner, TaskPins)>, StoreError>;

    /// Ends the interruption with this number. Among concurrent callers exactly one gets `true`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn end_interruption(&self, task: &TaskId, number: u64) -> Result<bool, StoreError>;
}
