//! Room that is taken before work begins, and how long one waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::confinement::kept::parking::AllParked;
use crate::observation::metrics::Meters;

/// Room for live instances, as much as the engine's pool has, or for the turns of one extension.
#[derive(Clone)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    timeout: Duration,
    /// The slots that are left to others. Who leaves any does not wait for one.
    left_to_others: usize,
    /// The instances that are kept and take slots while they wait for a turn.
    parked: Arc<AllParked>,
}

impl Slots {
    pub(crate) fn new(count: u32, timeout: Duration) -> Self {
        // A semaphore with more permits than its maximum panics.
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(count));
        Self { free, timeout, left_to_others: 0, parked: AllParked::new(count) }
    }

    /// The instances that wait for a turn. `None` for one who leaves slots to others: it keeps none of them for later.
    pub(crate) fn parked(&self) -> Option<&Arc<AllParked>> {
        (self.left_to_others == 0).then_some(&self.parked)
    }

    /// Gives up an instance that waits for a turn. Returns true if there was one.
    pub(crate) fn give_up_one(&self) -> bool {
        // For one who leaves slots to others nobody gives way.
        self.left_to_others == 0 && self.parked.give_up_one()
    }

    /// The same room, of which half of what is free now is left to others.
    pub(crate) fn spare(&self) -> Self {
        // At least one, so that it is told from those who leave none.
        let left_to_others = (self.free.available_permits() / 2).max(1);
        Self { left_to_others, ..self.clone() }
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
        // No instance is kept from here on, and one that waits for a turn gives way to this one.
        let _waiting = self.parked.wait();
        if self.parked.give_up_one()
            && let Ok(slot) = Arc::clone(&self.free).try_acquire_owned()
        {
            return Some(slot);
        }
        let began = Instant::now();
        let waited = tokio::time::timeout(self.timeout, Arc::clone(&self.free).acquire_owned()).await;
        meters.add_wait(began.elapsed());
        // Nobody closes the semaphore, so only the timeout ends the wait without a slot.
        waited.ok().and_then(Result::ok)
    }
}
