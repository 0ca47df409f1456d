//! The turn of a task in this process, as other requests see it.

use annex_conversation::Fence;
use tokio_util::sync::CancellationToken;

/// A turn that runs or waits in this process, as other requests see it.
pub(crate) struct RunningTurn {
    /// Cancels the turn.
    pub(super) cancel: CancellationToken,
    pub(super) fence: Fence,
    /// The token that is cancelled when the turn has ended. Created for the first waiter.
    over: Option<CancellationToken>,
    /// The token that is cancelled when the turn has decided whether it answers with its task. Created for the first
    /// waiter.
    decided: Option<CancellationToken>,
    is_decided: bool,
}

impl RunningTurn {
    /// Creates the value for a turn that begins or waits. `is_decided` is true if the client already has its task.
    pub(crate) fn new(cancel: CancellationToken, fence: Fence, is_decided: bool) -> Self {
        Self { cancel, fence, over: None, decided: None, is_decided }
    }

    /// A token that is cancelled when the turn ends.
    pub(super) fn over(&mut self) -> CancellationToken {
        self.over.get_or_insert_default().clone()
    }

    /// A token that is cancelled when the turn has decided whether it answers with its task. `None` if the turn has
    /// decided already.
    pub(super) fn decided(&mut self) -> Option<CancellationToken> {
        (!self.is_decided).then(|| self.decided.get_or_insert_default().clone())
    }

    /// Called when the client has its answer. Wakes the waiters.
    pub(super) fn decide(&mut self) {
        self.is_decided = true;
        if let Some(decided) = self.decided.take() {
            decided.cancel();
        }
    }

    /// Ends the turn and wakes all waiters.
    pub(super) fn end(mut self) {
        self.decide();
        if let Some(over) = self.over {
            over.cancel();
        }
    }
}
