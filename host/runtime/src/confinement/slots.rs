//! Room that is taken before work begins, and how long one waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_fairness::{FairPlaces, Place};

use crate::confinement::kept::parking::AllParked;
use crate::observation::metrics::Meters;

/// Room for live instances, as much as the engine's pool has, or for the turns of one extension. Tenants that wait get it in
/// turn.
#[derive(Clone)]
pub(crate) struct Slots {
    places: FairPlaces,
    /// The tenant that takes them.
    tenant: Arc<str>,
    timeout: Duration,
    /// The slots that are left to others. Who leaves any does not wait for one.
    left_to_others: usize,
    /// The instances that are kept and take slots while they wait for a turn.
    parked: Arc<AllParked>,
}

impl Slots {
    pub(crate) fn new(count: u32, timeout: Duration) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let places = FairPlaces::new(count);
        Self { places, tenant: Arc::default(), timeout, left_to_others: 0, parked: AllParked::new(count) }
    }

    /// The same room for another tenant.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        Self { tenant: Arc::clone(tenant), ..self.clone() }
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
        let left_to_others = (self.places.free() / 2).max(1);
        Self { left_to_others, ..self.clone() }
    }

    /// Room of an extension's own, with the same timeout.
    pub(crate) fn of_extension(&self, turns: u32) -> Self {
        Self::new(turns, self.timeout)
    }

    /// Takes a slot, waiting for one in the order of asking among those of the tenant, but not for long: `None` means
    /// overload.
    pub(crate) async fn take(&self, meters: &Meters) -> Option<Place> {
        if self.left_to_others > 0 {
            let has_room = self.places.free() > self.left_to_others;
            return has_room.then(|| self.places.try_take()).flatten();
        }
        // As long as there is room, no clock is read and no timer is made.
        if let Some(slot) = self.places.try_take() {
            return Some(slot);
        }
        // No instance is kept from here on, and one that waits for a turn gives way to this one.
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
