//! Tasks whose process has ended.

use annex_leases::Replica;
use annex_protocol::{Owner, TaskId};

/// The turn that creates a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Creator<'a> {
    /// The replica under which the turn began; `None` for the current replica of this process.
    pub runner: Option<&'a Replica>,
    /// The text with which another process can continue the task ([`LostTurn`]); `None` if the task fails with its
    /// process.
    pub turn: Option<&'a str>,
}

/// The outcome for tasks whose process has ended.
#[derive(Debug, Default)]
pub struct LostTasks {
    /// The tasks that were ended.
    pub ended: Vec<TaskId>,
    /// The turns that this process has taken and must continue.
    pub turns: Vec<LostTurn>,
}

/// A turn whose process has ended. This process owns the task now, in another epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostTurn {
    /// The task.
    pub task: TaskId,
    /// Its owner.
    pub owner: Owner,
    /// The epoch in which this process has the task.
    pub epoch: u64,
    /// The stored text for continuing the turn.
    pub turn: String,
}
