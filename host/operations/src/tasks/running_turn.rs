//! The running turn of a task in this process, as other requests see it.

use annex_leases::Replica;
use annex_tasks::Place;
use tokio_util::sync::CancellationToken;

/// A running turn, as other requests see it.
pub(super) struct RunningTurn {
    /// Cancels the turn.
    pub(super) cancel: CancellationToken,
    /// Cancelled when the turn ends. Created for the first waiter.
    over: Option<CancellationToken>,
    /// The replica of the turn. `None` if only one process can use the store.
    pub(super) runner: Option<Replica>,
    /// The task's epoch in which the turn writes.
    pub(super) epoch: u64,
    /// True once the store has refused a write of the turn.
    pub(super) is_fenced: bool,
}

impl RunningTurn {
    /// `place` is the place of the turn's first write.
    pub(super) fn new(cancel: CancellationToken, place: &Place) -> Self {
        Self { cancel, over: None, runner: place.runner.clone(), epoch: place.epoch, is_fenced: false }
    }

    /// True if the task may belong to another process. Nothing more is written for this turn then.
    pub(super) fn is_lost(&self) -> bool {
        self.is_fenced || self.runner.as_ref().is_some_and(Replica::is_over)
    }

    /// A token that is cancelled when the turn ends.
    pub(super) fn over(&mut self) -> CancellationToken {
        self.over.get_or_insert_default().clone()
    }

    /// Ends the turn and wakes all waiters.
    pub(super) fn end(self) {
        if let Some(over) = self.over {
            over.cancel();
        }
    }
}
