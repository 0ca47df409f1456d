//! The turn of this process that works on a task, as others see it.

use annex_leases::Replica;
use annex_tasks::Place;
use tokio_util::sync::CancellationToken;

/// A turn as others see it.
pub(super) struct RunningTurn {
    /// Stops the turn.
    pub(super) cancel: CancellationToken,
    /// Fires when the turn is over. Made for the first who waits for that.
    over: Option<CancellationToken>,
    /// The replica that it belongs to; `None` where one process has the store.
    pub(super) runner: Option<Replica>,
    /// The epoch of the task that it writes for.
    pub(super) epoch: u64,
    /// True once the store has refused to write for it.
    pub(super) is_fenced: bool,
}

impl RunningTurn {
    /// `place` is that of its first write.
    pub(super) fn new(cancel: CancellationToken, place: &Place) -> Self {
        Self { cancel, over: None, runner: place.runner.clone(), epoch: place.epoch, is_fenced: false }
    }

    /// True if the task may be another process's by now, so that nothing more is written for this turn.
    pub(super) fn is_lost(&self) -> bool {
        self.is_fenced || self.runner.as_ref().is_some_and(Replica::is_over)
    }

    /// Fires when the turn is over.
    pub(super) fn over(&mut self) -> CancellationToken {
        self.over.get_or_insert_default().clone()
    }

    /// Tells whoever waits that the turn is over.
    pub(super) fn end(self) {
        if let Some(over) = self.over {
            over.cancel();
        }
    }
}
