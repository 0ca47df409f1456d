//! The place and the right of a writer of a task.

use std::sync::Arc;

use annex_leases::Replica;

/// The place in the log of a task after which a writer appends.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The number of the last event.
    pub seq: u64,
    /// Counts the turns of the task, and the processes that have taken it from another. A writer of an earlier epoch is
    /// refused. Always 0 where one process has the store.
    pub epoch: u64,
    /// The replica that the turn belongs to, which stays the same to its end. `None` without a turn, and where one process
    /// has the store.
    pub runner: Option<Replica>,
    /// The text with which another process can continue the turn that begins here, if this process ends. `None` if such
    /// a turn fails.
    pub turn: Option<Arc<str>>,
}

impl Place {
    /// Behind this event of a task whose epoch has not changed yet.
    #[must_use]
    pub fn after(seq: u64) -> Self {
        Self { seq, ..Self::default() }
    }
}

/// The process with the turn, for another process that wants to cancel the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedRunner {
    /// The epoch of that turn.
    pub epoch: u64,
    /// True if the lease of the process with the turn is not over.
    pub is_alive: bool,
}
