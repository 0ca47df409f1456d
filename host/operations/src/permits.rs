//! Permits for turns: limits on concurrent turns, in total and per caller. Each tenant has its own permits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::{of_same_tenant, resize};
use annex_protocol::{A2aError, Owner};
use annex_telemetry::of_same_request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::fault;
use crate::permits::shared::{SharedPlace, SharedPlaces};
use crate::quota::TenantUse;

pub mod shared;

/// The longest time that a message waits for a permit.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Limits the turns that run, or wait in the queue of their conversation.
pub struct TurnLimiter {
    counts: Arc<TurnCounts>,
    /// The quota of the tenant, which provides the error for too many turns. `None` for a tenant without a limit on turns.
    quota: Option<Arc<TenantUse>>,
}

/// Counts a tenant's turns that have a permit or wait for one. The counts survive a change of the tenant's text.
pub(crate) struct TurnCounts {
    /// The limits on turns. A reload of the config replaces the limits.
    bounds: Mutex<TurnBounds>,
    free: Arc<Semaphore>,
    /// The places for messages that wait for a permit. There are as many places as permits. Further messages are
    /// refused at once.
    waiting: Arc<Semaphore>,
    /// The turns of each authenticated caller, and of the tenant as a whole if it has a quota.
    by_caller: Mutex<HashMap<Owner, Turns>>,
    places: Arc<SharedPlaces>,
}

/// The limits on concurrent turns and on the duration of a turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnBounds {
    /// The maximum number of concurrent turns in this process.
    pub in_all: usize,
    /// The maximum number of concurrent turns of one caller, over all processes.
    pub per_caller: usize,
    /// The maximum number of turns that wait in one conversation. The running turn is not counted.
    pub waiting: usize,
    /// The longest duration of a turn.
    pub longest: Duration,
}

/// The turns of one caller in this process.
#[derive(Clone, Copy, Default)]
struct Turns {
    all: usize,
    /// The number of turns within this process's share of the limit. They need no shared place.
    own: usize,
}

/// The permit of one turn. Dropping it releases the permit.
pub(crate) struct TurnPermit {
    _permit: OwnedSemaphorePermit,
    _counted: CountedTurn,
}

/// What one turn adds to two counts: the turns of its tenant, and the turns of its caller. A field is `None` if there
/// is no limit for that count.
struct CountedTurn {
    _tenant: Option<Caller>,
    _caller: Option<Caller>,
}

/// One counted turn of a caller, or of a tenant.
struct Caller {
    counts: Arc<TurnCounts>,
    owner: Owner,
    /// The maximum number of turns of the caller.
    most: usize,
    /// The shared place. `None` for a turn within this process's share.
    place: Option<SharedPlace>,
}

impl TurnLimiter {
    /// Creates a limiter for one tenant. `quota` is the quota of the tenant, and `places` are shared by all processes.
    pub fn new(bounds: TurnBounds, quota: Option<Arc<TenantUse>>, places: Arc<SharedPlaces>) -> Arc<Self> {
        let new = || TurnCounts::new(bounds, places);
        let counts = match &quota {
            Some(used) => used.ledger().turns(new),
            None => Arc::new(new()),
        };
        // The turns of an earlier version of the tenant were counted under other bounds.
        counts.set_bounds(bounds);
        let quota = quota.filter(|used| used.quota().turns.is_some());
        Arc::new(Self { counts, quota })
    }

    /// The number of turns with a permit in this process.
    #[must_use]
    pub fn running(&self) -> usize {
        self.bounds().in_all.saturating_sub(self.counts.free.available_permits())
    }

    /// The current bounds.
    #[must_use]
    pub fn bounds(&self) -> TurnBounds {
        self.counts.bounds()
    }

    /// Replaces the bounds. Running turns continue. If more turns run than the new limit allows, no turn begins until enough
    /// turns have ended.
    pub fn set_bounds(&self, bounds: TurnBounds) {
        self.counts.set_bounds(bounds);
    }

    /// Takes a permit for a turn of this caller, and waits up to a second for a free permit. Anonymous clients have no limit
    /// per caller, because they cannot be distinguished.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if no permit becomes free, or at once if the caller has reached its limit.
    /// [`A2aError::QuotaExceeded`] if the tenant has reached its limit.
    pub(crate) async fn take(&self, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let taken = self.wait(owner).await;
        taken.inspect_err(|error| {
            let ids = annex_telemetry::ids();
            let (tenant, context, task) = ids.all();
            tracing::warn!(target: crate::LOG_TARGET, %error, tenant, context, task, "a message is refused");
        })
    }

    async fn wait(&self, owner: &Owner) -> Result<TurnPermit, A2aError> {
        // The caller is counted before the wait, so that one caller cannot take all waiting places.
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

    /// Takes a permit without waiting for other turns.
    ///
    /// # Errors
    /// The errors of [`take`](Self::take), if no permit is free.
    pub(crate) async fn try_take(&self, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let counted = self.count(owner).await?;
        let counts = &self.counts;
        let permit = Arc::clone(&counts.free).try_acquire_owned().map_err(|_| counts.full())?;
        Ok(TurnPermit { _permit: permit, _counted: counted })
    }

    async fn count(&self, owner: &Owner) -> Result<CountedTurn, A2aError> {
        let tenant = match self.quota.as_deref().and_then(|used| Some((used, used.quota().turns?))) {
            Some((used, most)) => {
                // Anonymous callers are not counted individually, so the empty name is free for the tenant's total.
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
    /// Lowers bounds that exceed the number of permits that a semaphore can have.
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
        // Held to the end, so that a concurrent change starts from the result of this one.
        let mut before = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        for permits in [&self.free, &self.waiting] {
            resize(permits, before.in_all, bounds.in_all);
        }
        *before = bounds;
    }

    /// Counts one more turn of `owner`. `None` if the owner already has `most` turns.
    async fn one_more(self: &Arc<Self>, owner: Owner, most: usize) -> Result<Option<Caller>, A2aError> {
        let Some(is_own) = self.is_own(&owner, most) else { return Ok(None) };
        // The turn is counted from here on, at first within the share.
        let caller = Caller { counts: Arc::clone(self), owner, most, place: None };
        if is_own {
            return Ok(Some(caller));
        }
        // A task of its own: if the client hangs up, the shared place is still released, and the turn is counted as
        // long as the store works for it.
        tokio::spawn(of_same_request(of_same_tenant(caller.placed()))).await.map_err(|error| fault::internal(&error))?
    }

    /// Counts one more turn of the caller in this process. `true` if the turn is within this process's share of the
    /// limit, `false` if it needs a shared place. `None` if the caller has reached its limit.
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
        // The entry is removed with the last turn, so that the map only has callers with turns.
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
    /// Takes a shared place for the turn. `None` if all are taken.
    async fn placed(mut self) -> Result<Option<Self>, A2aError> {
        let counts = Arc::clone(&self.counts);
        let taken = counts.places.take(&self.owner, self.most).await;
        let Some(place) = taken.map_err(|error| fault::internal(&error))? else { return Ok(None) };
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
