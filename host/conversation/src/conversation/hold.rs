//! The place of a turn in the queue of its conversation.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::StoreError;
use crate::fence::Fence;
use crate::key::ConversationKey;
use crate::queue::{Departure, Submission};
use crate::store::ConversationStore;

/// The pause before a turn tries again to leave its queue, after the store has failed.
const LEAVE_AGAIN: Duration = Duration::from_millis(500);

/// The place of a turn in its queue. If the value is dropped, the turn leaves the queue.
pub(super) struct Hold {
    pub(super) store: Arc<dyn ConversationStore>,
    pub(super) key: ConversationKey,
    pub(super) fence: Fence,
    pub(super) submission: Submission,
    standing: Mutex<Standing>,
}

/// The progress of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The turn is in the queue, and its message is not accepted yet.
    Unheard,
    /// The message of the turn is accepted.
    Accepted,
    /// The turn has left the queue, or another process has taken the turn.
    Over,
}

impl Hold {
    pub(super) fn new(
        store: &Arc<dyn ConversationStore>,
        key: ConversationKey,
        (fence, submission): (Fence, Submission),
        standing: Standing,
    ) -> Self {
        Self { store: Arc::clone(store), key, fence, submission, standing: Mutex::new(standing) }
    }

    pub(super) fn set(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    pub(super) fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn leave(&self, departure: Departure) -> Result<(), StoreError> {
        // The turn no longer belongs to this process. Other processes decide by the stored entries.
        if self.standing() == Standing::Over {
            return Ok(());
        }
        self.store.leave(&self.key, &self.fence, departure).await?;
        self.set(Standing::Over);
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let departure = match self.standing() {
            Standing::Unheard => Departure::Refused,
            Standing::Accepted => Departure::HandedOver { has_begun: true },
            Standing::Over => return,
        };
        // Without a runtime the process is ending, and its lease ends too.
        let Ok(runtime) = Handle::try_current() else { return };
        let (store, key, fence) = (Arc::clone(&self.store), self.key.clone(), self.fence.clone());
        // As long as the process lives, a turn that has not left keeps the next one waiting. So leaving is tried until
        // it succeeds.
        runtime.spawn(async move {
            while store.leave(&key, &fence, departure).await.is_err() {
                tokio::time::sleep(LEAVE_AGAIN).await;
            }
        });
    }
}
