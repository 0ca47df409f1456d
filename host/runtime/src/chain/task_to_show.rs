//! Tasks as the hook `reads` gets them, and the decisions of an extension about them.

use annex_protocol::{ContextId, Metadata, Task, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// A stored task that a reader is about to be shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskToShow {
    /// Id of the task.
    pub id: TaskId,
    /// The conversation of the task.
    pub context_id: ContextId,
    /// The state of the task.
    pub state: TaskState,
    /// Metadata of the task. An extension gets the entries under its own keys.
    #[serde(default)]
    pub metadata: Metadata,
}

impl From<&Task> for TaskToShow {
    fn from(task: &Task) -> Self {
        Self {
            id: task.id.clone(),
            context_id: task.context_id.clone(),
            state: task.status.state,
            metadata: task.metadata.clone(),
        }
    }
}

/// The decision of an extension about one task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShowDecision {
    /// The reader is shown the task as it is stored.
    Unchanged,
    /// The reader is shown these entries in the metadata of the task.
    Adds(Metadata),
    /// The reader is not shown the task. The text is the reason.
    LeavesOut(String),
}
