//! Room that is taken before work begins, and how long one waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observation::metrics::Meters;

/// Room for live instances, as much as the engine's pool has, or for the turns of one extension.
#[derive(Clone)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    timeout: Duration,
    /// The slots that are left to others. Who leaves any does not wait for one.
    left_to_others: usize,
}

impl Slots {
    pub(crate) fn new(count: u32, timeout: Duration) -> Self {
        // A semaphore with more permits than its maximum panics.
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(count)), timeout, left_to_others: 0 }
    }

    /// The same room, of which half of what is free now is left to others.
    pub(crate) fn spare(&self) -> Self {
        let left_to_others = self.free.available_permits() / 2;
        Self { free: Arc::clone(&self.free), timeout: self.timeout, left_to_others }
    }

    /// Room of an extension's own, with the same timeout.
    pub(crate) fn of_extension(&self, turns: u32) -> Self {
        Self::new(turns, self.timeout)
    }

    /// Takes a slot, waiting for one in the order of asking, but not for long: `None` means overload.
    pub(crate) async fn take(&self, meters: &Meters) -> Option<OwnedSemaphorePermit> {
        if self.left_to_others > 0 {
            let has_room = self.free.available_permits() > self.left_to_others;
            return has_room.then(|| Arc::clone(&self.free).try_acquire_owned().ok()).flatten();
        }
        // As long as there is room, no clock is read and no timer is made.
        if let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(slot);
        }
        let began = Instant::now();
        let waited = tokio::time::timeout(self.timeout, Arc::clone(&self.free).acquire_owned()).await;
        meters.add_wait(began.elapsed());
        // Nobody closes the semaphore, so only the timeout ends the wait without a slot.
        waited.ok().and_then(Result::ok)
    }
}
