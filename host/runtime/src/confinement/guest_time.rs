//! The time of the cores for guests, which tenants that use much of it get by turns.
//!
//! All guests yield at each tick. That alone would let a tenant with many busy guests hold up the short calls of others for as
//! many ticks as it has guests. So the calls of a tenant that is busy go on in places, of which there is one less than there
//! are cores, and each gives its place up at each tick to whoever is next. Calls of all others need none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_fairness::{FairPlaces, Place};
use tokio::time::timeout;

use crate::confinement::engine;

/// A tenant is busy that takes more than one tick in so many.
const SHARE: u64 = 4;
/// The ticks that a tenant may take at once before it is busy.
const AT_ONCE: u64 = 4;
/// The longest time that a call waits before it begins.
const PATIENCE: Duration = Duration::from_secs(1);

/// The places of the process, as one tenant takes them.
#[derive(Clone, Debug)]
pub(crate) struct GuestTime {
    places: FairPlaces,
    /// Empty for the agent of the config itself, whose calls need no place.
    tenant: Arc<str>,
    /// The tick up to which the tenant's share pays for what it has taken.
    paid_until: Arc<AtomicU64>,
}

/// The place of a call while it has one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldPlace(Arc<Mutex<Option<Place>>>);

/// The place of a call that runs. It is free when this is dropped.
pub(crate) struct Entered(Option<HeldPlace>);

impl GuestTime {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let places = FairPlaces::new(cores.saturating_sub(1).max(1));
        Self { places, tenant: Arc::default(), paid_until: Arc::default() }
    }

    /// The same places for another tenant.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        Self { places: self.places.clone(), tenant: Arc::clone(tenant), paid_until: Arc::default() }
    }

    /// Counts a tick that a guest has run for. A call that is shorter meets one now and then.
    pub(crate) fn charge(&self) {
        let now = engine::ticks();
        let paid = |until: u64| Some(until.max(now).saturating_add(SHARE));
        // The closure always has a value.
        let _ = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }

    pub(crate) fn is_busy(&self) -> bool {
        let until = self.paid_until.load(Ordering::Relaxed);
        until > engine::ticks().saturating_add(SHARE * AT_ONCE)
    }

    /// Waits until a call may begin; `None` when that takes too long.
    pub(crate) async fn enter(&self) -> Option<Entered> {
        if self.tenant.is_empty() {
            return Some(Entered::without_place());
        }
        let held = HeldPlace::default();
        if self.is_busy() {
            held.set(Some(timeout(PATIENCE, self.places.take(&self.tenant)).await.ok()?));
        }
        Some(Entered(Some(held)))
    }

    /// Gives up the place, if there is one, and resolves with another one.
    pub(crate) async fn go_on(self, held: HeldPlace) {
        held.give_up();
        tokio::task::yield_now().await;
        let place = self.places.take(&self.tenant).await;
        held.set(Some(place));
    }
}

impl HeldPlace {
    pub(crate) fn give_up(&self) {
        self.set(None);
    }

    fn set(&self, place: Option<Place>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), place);
        // When nothing is locked any more: it goes to the next.
        drop(before);
    }
}

impl Entered {
    /// A call that needs no place.
    pub(crate) const fn without_place() -> Self {
        Self(None)
    }

    /// The place; `None` where the call needs none.
    pub(crate) fn place(&self) -> Option<HeldPlace> {
        self.0.clone()
    }

    /// While it waits for the host another one may go on.
    pub(crate) fn give_up(&self) {
        if let Some(held) = &self.0 {
            held.give_up();
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use annex_fairness::FairPlaces;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::{AT_ONCE, GuestTime, HeldPlace};

    const SOON: Duration = Duration::from_secs(5);

    fn one_place() -> GuestTime {
        GuestTime { places: FairPlaces::new(1), tenant: Arc::default(), paid_until: Arc::new(AtomicU64::new(0)) }
    }

    #[tokio::test]
    async fn tenants_go_on_by_turns() {
        let [loud, quiet] = ["loud", "quiet"].map(|name| one_place().of_tenant(&Arc::from(name)));
        let quiet = GuestTime { places: loud.places.clone(), ..quiet };
        let first = HeldPlace::default();
        loud.clone().go_on(first.clone()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Vec::new();
        for (name, time) in [("loud", &loud), ("loud", &loud), ("quiet", &quiet)] {
            let (time, order) = (time.clone(), Arc::clone(&order));
            calls.push(tokio::spawn(async move {
                let held = HeldPlace::default();
                time.go_on(held.clone()).await;
                order.lock().expect("nobody panicked").push(name);
                held.give_up();
            }));
            // Until it waits.
            for _ in 0..10 {
                yield_now().await;
            }
        }
        first.give_up();
        for call in calls {
            timeout(SOON, call).await.expect("its turn comes").expect("it goes on");
        }
        assert_eq!(*order.lock().expect("nobody panicked"), ["loud", "quiet", "loud"]);
    }

    #[tokio::test]
    async fn calls_of_a_tenant_that_is_not_busy_wait_for_nobody() {
        let process = one_place();
        let [loud, quiet] = ["loud", "quiet"].map(|name| process.of_tenant(&Arc::from(name)));
        (0..=AT_ONCE).for_each(|_| loud.charge());
        (0..=AT_ONCE).for_each(|_| process.charge());
        assert!(loud.is_busy() && !quiet.is_busy());
        let running = loud.enter().await.expect("a place is free");
        let waiting = tokio::spawn({
            let loud = loud.clone();
            async move { loud.enter().await.is_some() }
        });
        yield_now().await;
        for other in [&quiet, &process] {
            assert!(timeout(SOON, other.enter()).await.expect("nothing to wait for").is_some());
        }
        assert!(!waiting.is_finished());
        drop(running);
        assert!(timeout(SOON, waiting).await.expect("the place is free").expect("it enters"));
    }
}
