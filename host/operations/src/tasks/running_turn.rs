//! The turn of a task in this process, as other requests see it.

use annex_conversation::Fence;
use tokio_util::sync::CancellationToken;

/// A turn that runs or waits in this process, as other requests see it.
pub(crate) struct RunningTurn {
    /// Cancels the turn.
    pub(super) cancel: CancellationToken,
    pub(super) fence: Fence,
    /// A signal, sent by cancelling the token, that the turn has ended. Created for the first waiter.
    over: Option<CancellationToken>,
    /// A signal, sent by cancelling the token, that it is known whether the turn answers with its task. Created for the
    /// first waiter.
    decided: Option<CancellationToken>,
    is_decided: bool,
}

impl RunningTurn {
    /// Creates the entry for a turn. `is_decided` is true if the client already has its task.
    pub(crate) fn new(cancel: CancellationToken, fence: Fence, is_decided: bool) -> Self {
        Self { cancel, fence, over: None, decided: None, is_decided }
    }

    /// A token that is cancelled when the turn ends.
    pub(super) fn over(&mut self) -> CancellationToken {
        self.over.get_or_insert_default().clone()
    }

    /// A token that is cancelled when it is known whether the turn answers with its task. `None` if that is known.
    pub(super) fn decided(&mut self) -> Option<CancellationToken> {
        (!self.is_decided).then(|| self.decided.get_or_insert_default().clone())
    }

    /// Records that the client has its answer, and wakes the waiters.
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
