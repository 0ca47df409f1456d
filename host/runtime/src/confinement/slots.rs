//! Limits on live instances and on concurrent turns, with a timeout for waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_fairness::{FairPlaces, Place};

use crate::confinement::kept::parking::AllParked;
use crate::observation::metrics::Meters;

/// Slots for live instances, or for the concurrent turns of one extension. For instances there are as many slots as in
/// the engine's pool. Slots that become free go to the waiting tenants round robin.
#[derive(Clone)]
pub(crate) struct Slots {
    places: FairPlaces,
    /// The tenant for which slots are taken.
    tenant: Arc<str>,
    timeout: Duration,
    /// Number of slots that must stay free for others when this value takes a slot. If it is above 0, taking a slot
    /// never waits.
    left_to_others: usize,
    /// The idle kept instances. Each idle instance holds a slot.
    parked: Arc<AllParked>,
}

impl Slots {
    pub(crate) fn new(count: u32, timeout: Duration) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let places = FairPlaces::new(count);
        Self { places, tenant: Arc::default(), timeout, left_to_others: 0, parked: AllParked::new(count) }
    }

    /// Returns the same slots, but takes them for another tenant.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        Self { tenant: Arc::clone(tenant), ..self.clone() }
    }

    /// The idle kept instances. `None` if this value comes from [`Slots::spare`]: no instances are kept then.
    pub(crate) fn parked(&self) -> Option<&Arc<AllParked>> {
        (self.left_to_others == 0).then_some(&self.parked)
    }

    /// Drops an idle instance. Returns true if there was one.
    pub(crate) fn give_up_one(&self) -> bool {
        // No instance is dropped on behalf of a user that leaves slots to others.
        self.left_to_others == 0 && self.parked.give_up_one()
    }

    /// Returns a value that takes from the same slots, but only while enough slots stay free for others: half of the
    /// slots that are free now. Taking a slot never waits.
    pub(crate) fn spare(&self) -> Self {
        // At least one, because 0 means that none are left.
        let left_to_others = (self.places.free() / 2).max(1);
        Self { left_to_others, ..self.clone() }
    }

    /// Creates slots for the turns of one extension. A turn waits for a slot for at most the same timeout as for an
    /// instance.
    pub(crate) fn of_extension(&self, turns: u32) -> Self {
        Self::new(turns, self.timeout)
    }

    /// Takes a slot. If none is free, waits for at most the timeout, in order of arrival within the tenant. Returns
    /// `None` if no slot became free.
    pub(crate) async fn take(&self, meters: &Meters) -> Option<Place> {
        if self.left_to_others > 0 {
            let has_room = self.places.free() > self.left_to_others;
            return has_room.then(|| self.places.try_take()).flatten();
        }
        // While slots are free, this reads no clock and creates no timer.
        if let Some(slot) = self.places.try_take() {
            return Some(slot);
        }
        // While this guard exists no instance is parked, and a parked one gives way to this turn.
        let _waiting = self.parked.wait();
        if self.parked.give_up_one()
            && let Some(slot) = self.places.try_take()
        {
            return Some(slot);
        }
        let began = Instant::now();
        let waited = tokio::time::timeout(self.timeout, self.places.take(&self.tenant)).await;
        meters.add_wait(began.elapsed());
        waited.ok()
    }
}
