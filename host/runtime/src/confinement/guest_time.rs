//! Fair sharing of CPU cores between the guests of tenants.
//!
//! All guests yield at each tick. Yielding alone would not be fair: a tenant with many busy guests would delay each
//! short call of another tenant by as many ticks as it has guests. Therefore the calls of a busy tenant need a place to
//! run. There is one place less than cores, and a call gives up its place at each tick. Calls of a tenant that is not
//! busy need no place.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use annex_fairness::{FairPlaces, Place};
use tokio::time::{Instant, timeout};

/// A tenant is busy if its guests use more than one part in `SHARE` of a core.
const SHARE: u64 = 4;
/// CPU time that a tenant's guests may use in a burst before it is busy.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Maximum debt, in multiples of the burst. It limits how long a tenant stays busy after its last call.
const MAX_DEBT: u64 = 3;

/// The share of CPU time of one tenant. All tenants of the process share the places.
#[derive(Clone, Debug)]
pub(crate) struct GuestTime {
    places: FairPlaces,
    /// The tenant. Empty for the config's own agent, whose calls need no place.
    tenant: Arc<str>,
    began: Instant,
    /// Time until which the tenant has used its share, in nanoseconds since `began`.
    paid_until: Arc<AtomicU64>,
}

/// The place of one call. It is empty while the call has no place. Clones belong to the same call.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldPlace(Arc<CallPlace>);

#[derive(Debug, Default)]
struct CallPlace {
    place: Mutex<Option<Place>>,
    /// True while the guest waits in [`GuestTime::go_on`].
    goes_on: AtomicBool,
}

/// A call that has begun. Dropping it frees its place.
pub(crate) struct GuestCall {
    /// `None` if the call needs no place.
    call: Option<(GuestTime, HeldPlace)>,
    /// The future of a place for a guest that waited for the host and is ready to run again.
    entering: Option<Pin<Box<dyn Future<Output = Place> + Send>>>,
}

impl GuestTime {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_places(cores.saturating_sub(1).max(1))
    }

    fn with_places(places: usize) -> Self {
        let places = FairPlaces::new(places);
        Self { places, tenant: Arc::default(), began: Instant::now(), paid_until: Arc::default() }
    }

    /// The share of CPU time of another tenant, with the same places.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        Self { tenant: Arc::clone(tenant), paid_until: Arc::default(), ..self.clone() }
    }

    fn now(&self) -> u64 {
        nanos(self.began.elapsed())
    }

    fn charge(&self, spent: Duration) {
        let now = self.now();
        let most = now.saturating_add(MAX_DEBT * SHARE * nanos(AT_ONCE));
        let paid = |until: u64| Some(until.max(now).saturating_add(SHARE * nanos(spent)).min(most));
        // The closure never returns `None`.
        let _ = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }

    pub(crate) fn is_busy(&self) -> bool {
        let until = self.paid_until.load(Ordering::Relaxed);
        until > self.now().saturating_add(SHARE * nanos(AT_ONCE))
    }

    /// Waits until a call may begin. `None` if that takes longer than `patience`.
    pub(crate) async fn enter(&self, patience: Duration) -> Option<GuestCall> {
        if self.tenant.is_empty() {
            return Some(GuestCall::without_place());
        }
        let held = HeldPlace::default();
        if self.is_busy() {
            held.set(Some(timeout(patience, self.places.take(&self.tenant)).await.ok()?));
        }
        Some(GuestCall { call: Some((self.clone(), held)), entering: None })
    }

    /// Frees the place of a call, and waits for a place again.
    pub(crate) async fn go_on(self, held: HeldPlace) {
        held.0.goes_on.store(true, Ordering::Relaxed);
        held.give_up();
        tokio::task::yield_now().await;
        let place = self.places.take(&self.tenant).await;
        held.set(Some(place));
        held.0.goes_on.store(false, Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl HeldPlace {
    fn give_up(&self) {
        self.set(None);
    }

    fn set(&self, place: Option<Place>) {
        let before = std::mem::replace(&mut *self.0.place.lock().unwrap_or_else(PoisonError::into_inner), place);
        // Dropped without holding the lock, because dropping passes the place on.
        drop(before);
    }

    fn has_place(&self) -> bool {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn goes_on(&self) -> bool {
        self.0.goes_on.load(Ordering::Relaxed)
    }
}

impl GuestCall {
    /// A call that needs no place.
    pub(crate) const fn without_place() -> Self {
        Self { call: None, entering: None }
    }

    /// The place of the call; `None` if the call needs none.
    pub(crate) fn place(&self) -> Option<HeldPlace> {
        self.call.as_ref().map(|(_, held)| held.clone())
    }

    /// Polls the guest and charges the time to the tenant. While the guest waits for the host, other calls can use its
    /// place. Before it runs again, the guest of a busy tenant waits for a place.
    pub(crate) fn poll<F: Future>(&mut self, mut running: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some((time, held)) = &self.call else { return running.poll(context) };
        if time.is_busy() && !held.has_place() && !held.goes_on() {
            let entering = self.entering.get_or_insert_with(|| {
                let time = time.clone();
                Box::pin(async move { time.places.take(&time.tenant).await })
            });
            held.set(Some(ready!(entering.as_mut().poll(context))));
        }
        self.entering = None;
        let began = Instant::now();
        let polled = running.as_mut().poll(context);
        time.charge(began.elapsed());
        if polled.is_pending() {
            held.give_up();
        }
        polled
    }

    /// True while the guest is ready to run and waits for a place.
    pub(crate) fn waits_for_turn(&self) -> bool {
        self.entering.is_some() || self.call.as_ref().is_some_and(|(_, held)| held.goes_on())
    }
}

impl Drop for GuestCall {
    fn drop(&mut self) {
        if let Some((_, held)) = &self.call {
            held.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::{AT_ONCE, GuestTime, HeldPlace, MAX_DEBT, SHARE};

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn tenants_go_on_by_turns() {
        let process = GuestTime::with_places(1);
        let [loud, quiet] = ["loud", "quiet"].map(|name| process.of_tenant(&Arc::from(name)));
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
        let process = GuestTime::with_places(1);
        let [loud, quiet] = ["loud", "quiet"].map(|name| process.of_tenant(&Arc::from(name)));
        loud.charge(AT_ONCE * 2);
        assert!(loud.is_busy() && !quiet.is_busy());
        let running = loud.enter(SOON).await.expect("a place is free");
        let waiting = tokio::spawn({
            let loud = loud.clone();
            async move { loud.enter(SOON).await.is_some() }
        });
        yield_now().await;
        for other in [&quiet, &process] {
            assert!(timeout(SOON, other.enter(SOON)).await.expect("nothing to wait for").is_some());
        }
        assert!(!waiting.is_finished());
        drop(running);
        assert!(timeout(SOON, waiting).await.expect("the place is free").expect("it enters"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_stops_being_busy_soon_after_any_use() {
        let tenant = GuestTime::with_places(1).of_tenant(&Arc::from("loud"));
        tenant.charge(Duration::from_secs(3_600));
        assert!(tenant.is_busy());
        let longest = AT_ONCE * u32::try_from(MAX_DEBT * SHARE).expect("a small number");
        tokio::time::advance(longest).await;
        assert!(!tenant.is_busy());
    }
}
