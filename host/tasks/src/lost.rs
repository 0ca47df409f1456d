//! Tasks whose process is gone.

use annex_protocol::TaskId;

use crate::Owner;

/// What became of tasks whose process is gone.
#[derive(Debug, Default)]
pub struct LostTasks {
    /// Those that were ended.
    pub ended: Vec<TaskId>,
    /// Turns that are this process's to go on with.
    pub turns: Vec<LostTurn>,
}

/// A turn whose process is gone. Its task is this process's, in another epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostTurn {
    /// The task.
    pub task: TaskId,
    /// Its owner.
    pub owner: Owner,
    /// The epoch in which this process has the task.
    pub epoch: u64,
    /// What was stored to go on with it.
    pub turn: String,
}
