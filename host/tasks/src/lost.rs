//! Tasks whose process is gone.

use annex_leases::Replica;
use annex_protocol::{Owner, TaskId};

/// The turn that creates a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Creator<'a> {
    /// The replica that it has begun as one of; `None` for the one that this process is now.
    pub runner: Option<&'a Replica>,
    /// The text with which another process goes on with it ([`LostTurn`]); `None` where it fails then.
    pub turn: Option<&'a str>,
}

/// The fate of tasks whose process is gone.
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
    /// The text that was stored to go on with it.
    pub turn: String,
}
