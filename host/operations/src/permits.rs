//! Permits for turns: how many there may be at once, in all and per caller. Each tenant has permits of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::{of_same_tenant, resize};
use annex_protocol::{A2aError, Owner};
use annex_telemetry::of_same_request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::fault;
use crate::permits::shared::{Place, SharedPlaces};
use crate::quota::TenantUse;

pub mod shared;

/// The longest time that a message waits for a permit.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Bounds the turns that run or wait for their context.
pub struct TurnLimiter {
    counts: Arc<TurnCounts>,
    /// Says that the tenant has as many as it may. `None` where it may have any number.
    quota: Option<Arc<TenantUse>>,
}

/// The turns of a tenant that have a permit or wait for one. They are counted on when the tenant's text is changed.
pub(crate) struct TurnCounts {
    /// A reload of the config changes them.
    bounds: Mutex<TurnBounds>,
    free: Arc<Semaphore>,
    /// As many messages wait for a permit as there are permits; more are refused at once.
    waiting: Arc<Semaphore>,
    /// Of authenticated callers, and of the tenant where it has a quota.
    by_caller: Mutex<HashMap<Owner, Turns>>,
    places: Arc<SharedPlaces>,
}

/// The most turns at once, and the longest turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnBounds {
    /// In this process.
    pub in_all: usize,
    /// Of one caller, in all processes together.
    pub per_caller: usize,
    /// The longest that one turn may take.
    pub longest: Duration,
}

/// The turns of a caller in this process.
#[derive(Clone, Copy, Default)]
struct Turns {
    all: usize,
    /// Those that have no place among all processes.
    own: usize,
}

/// The permit of one turn, free again when this is dropped.
pub(crate) struct TurnPermit {
    _permit: OwnedSemaphorePermit,
    _counted: CountedTurn,
}

/// A turn as it counts for its tenant and its caller, each where its turns are bounded.
struct CountedTurn {
    _tenant: Option<Caller>,
    _caller: Option<Caller>,
}

/// One of the turns of a caller, or of all callers of a tenant.
struct Caller {
    counts: Arc<TurnCounts>,
    owner: Owner,
    /// The turns that it may have.
    most: usize,
    /// `None` for a turn that this process has room for by itself.
    place: Option<Place>,
}

impl TurnLimiter {
    /// `quota` is that of the tenant.
    pub fn new(bounds: TurnBounds, quota: Option<Arc<TenantUse>>, places: Arc<SharedPlaces>) -> Arc<Self> {
        let new = || TurnCounts::new(bounds, places);
        let counts = match &quota {
            Some(used) => used.ledger().turns(new),
            None => Arc::new(new()),
        };
        // Turns that an earlier text of the tenant began were counted under the bounds of that time.
        counts.set_bounds(bounds);
        let quota = quota.filter(|used| used.quota().turns.is_some());
        Arc::new(Self { counts, quota })
    }

    /// The turns that have a permit now, in this process.
    #[must_use]
    pub fn running(&self) -> usize {
        self.bounds().in_all.saturating_sub(self.counts.free.available_permits())
    }

    /// The bounds in effect.
    #[must_use]
    pub fn bounds(&self) -> TurnBounds {
        self.counts.bounds()
    }

    /// Puts other bounds into effect. Turns that run go on: where more run than there may be, none begins until enough of them
    /// have ended.
    pub fn set_bounds(&self, bounds: TurnBounds) {
        self.counts.set_bounds(bounds);
    }

    /// Takes a permit for a turn of this caller, and waits for one for a second. Anonymous clients cannot be told apart, so
    /// they share what there is.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when none becomes free, or at once when the caller has as many as it may;
    /// [`A2aError::QuotaExceeded`] when its tenant has.
    pub(crate) async fn take(&self, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let taken = self.wait(owner).await;
        taken.inspect_err(|error| {
            let ids = annex_telemetry::ids();
            let (tenant, context, task) = ids.all();
            tracing::warn!(target: crate::LOG_TARGET, %error, tenant, context, task, "a message is refused");
        })
    }

    /// The places that it takes when its own share of them is used up.
    pub fn places(&self) -> &Arc<SharedPlaces> {
        &self.counts.places
    }

    async fn wait(&self, owner: &Owner) -> Result<TurnPermit, A2aError> {
        // Counted while it waits, so that one caller cannot take all the places of those that wait.
        let counted = self.count(owner).await?;
        let counts = &self.counts;
        if let Ok(permit) = Arc::clone(&counts.free).try_acquire_owned() {
            return Ok(TurnPermit { _permit: permit, _counted: counted });
        }
        let _waiting = counts.waiting.try_acquire().map_err(|_| counts.full())?;
        match timeout(MAX_WAIT, Arc::clone(&counts.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(TurnPermit { _permit: permit, _counted: counted }),
            _ => Err(counts.full()),
        }
    }

    /// The same without waiting for other turns.
    ///
    /// # Errors
    /// As [`take`](Self::take) when there is none.
    pub(crate) async fn try_take(&self, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let counted = self.count(owner).await?;
        let counts = &self.counts;
        let permit = Arc::clone(&counts.free).try_acquire_owned().map_err(|_| counts.full())?;
        Ok(TurnPermit { _permit: permit, _counted: counted })
    }

    async fn count(&self, owner: &Owner) -> Result<CountedTurn, A2aError> {
        let tenant = match self.quota.as_deref().and_then(|used| Some((used, used.quota().turns?))) {
            Some((used, most)) => {
                // An anonymous caller is not counted by itself, so that nobody else is counted under this name.
                let all = Owner { tenant: owner.tenant.clone(), principal: String::new() };
                Some(self.counts.one_more(all, most).await?.ok_or_else(|| used.has_enough_turns(most))?)
            }
            None => None,
        };
        let caller = if owner.principal.is_empty() {
            None
        } else {
            let most = self.bounds().per_caller;
            let enough = || overloaded(format!("{most} turns of yours run already"));
            Some(self.counts.one_more(owner.clone(), most).await?.ok_or_else(enough)?)
        };
        Ok(CountedTurn { _tenant: tenant, _caller: caller })
    }
}

impl TurnBounds {
    /// The same with no more turns than a semaphore counts.
    fn reachable(self) -> Self {
        Self { in_all: self.in_all.min(Semaphore::MAX_PERMITS), ..self }
    }
}

impl TurnCounts {
    fn new(bounds: TurnBounds, places: Arc<SharedPlaces>) -> Self {
        let bounds = bounds.reachable();
        let semaphore = || Arc::new(Semaphore::new(bounds.in_all));
        let (free, waiting) = (semaphore(), semaphore());
        Self { bounds: Mutex::new(bounds), free, waiting, by_caller: Mutex::default(), places }
    }

    fn bounds(&self) -> TurnBounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_bounds(&self, bounds: TurnBounds) {
        let bounds = bounds.reachable();
        // Held to the end: of two changes at a time, each has to begin where the other has ended.
        let mut before = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        for permits in [&self.free, &self.waiting] {
            resize(permits, before.in_all, bounds.in_all);
        }
        *before = bounds;
    }

    /// Counts one more turn of at most so many. `None` when there are as many.
    async fn one_more(self: &Arc<Self>, owner: Owner, most: usize) -> Result<Option<Caller>, A2aError> {
        let Some(is_own) = self.is_own(&owner, most) else { return Ok(None) };
        // It is counted from here on, as an own one until it has a place.
        let caller = Caller { counts: Arc::clone(self), owner, most, place: None };
        if is_own {
            return Ok(Some(caller));
        }
        // In a task of its own: a client that goes away meanwhile must leave no place behind, and stays counted as long as the
        // store works for it.
        tokio::spawn(of_same_request(of_same_tenant(caller.placed()))).await.map_err(|error| fault::internal(&error))?
    }

    /// Counts one more turn of the caller. `false` when it needs a place among all processes, `None` when there is none.
    fn is_own(&self, owner: &Owner, most: usize) -> Option<bool> {
        let mut by_caller = self.by_caller();
        let turns = by_caller.entry(owner.clone()).or_default();
        if turns.all >= most {
            return None;
        }
        turns.all += 1;
        turns.own += 1;
        Some(turns.own <= self.places.own(most))
    }

    fn change(&self, owner: &Owner, change: impl FnOnce(&mut Turns)) {
        let mut by_caller = self.by_caller();
        let Some(turns) = by_caller.get_mut(owner) else { return };
        change(turns);
        // The map is as large as the callers that have a turn, and not as all that ever had one.
        if turns.all == 0 {
            by_caller.remove(owner);
        }
    }

    fn full(&self) -> A2aError {
        overloaded(format!("{} turns run already", self.bounds().in_all))
    }

    fn by_caller(&self) -> MutexGuard<'_, HashMap<Owner, Turns>> {
        self.by_caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded(reason: String) -> A2aError {
    A2aError::Overloaded { reason }
}

impl Caller {
    /// Takes a place among all processes. `None` when there is none.
    async fn placed(mut self) -> Result<Option<Self>, A2aError> {
        let counts = Arc::clone(&self.counts);
        let taken = counts.places.take(&self.owner, self.most).await;
        let Some(place) = taken.map_err(fault::of_store)? else { return Ok(None) };
        counts.change(&self.owner, |turns| turns.own -= 1);
        self.place = Some(place);
        Ok(Some(self))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let is_own = self.place.is_none();
        self.counts.change(&self.owner, |turns| {
            turns.all -= 1;
            turns.own -= usize::from(is_own);
        });
    }
}
