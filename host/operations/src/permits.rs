//! Permits for turns: how many there may be at once, in all and per caller. Each tenant has permits of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_protocol::A2aError;
use annex_tasks::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::fault;
use crate::permits::shared::{Place, SharedPlaces};

pub mod shared;

/// The longest time that a message waits for a permit.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Bounds the turns that run or wait for their context.
pub struct TurnLimiter {
    in_all: usize,
    per_caller: usize,
    free: Arc<Semaphore>,
    /// As many messages wait for a permit as there are permits; more are refused at once.
    waiting: Semaphore,
    /// Of authenticated callers only.
    by_caller: Mutex<HashMap<Owner, Turns>>,
    places: Arc<SharedPlaces>,
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
    _caller: Caller,
}

/// One of the turns of a caller.
struct Caller {
    limiter: Arc<TurnLimiter>,
    owner: Owner,
    /// `None` for a turn that this process has room for by itself.
    place: Option<Place>,
}

impl TurnLimiter {
    /// `per_caller` are the turns of one caller in all processes together.
    pub fn new(in_all: usize, per_caller: usize, places: Arc<SharedPlaces>) -> Arc<Self> {
        let in_all = in_all.min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(in_all));
        let waiting = Semaphore::new(in_all);
        Arc::new(Self { in_all, per_caller, free, waiting, by_caller: Mutex::default(), places })
    }

    /// Takes a permit for a turn of this caller, and waits for one for a second. Anonymous clients cannot be told apart, so
    /// they share what there is.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when none becomes free, or at once when the caller has as many as it may.
    pub(crate) async fn take(self: &Arc<Self>, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let taken = self.wait(owner).await;
        taken.inspect_err(|error| tracing::warn!(target: crate::LOG_TARGET, %error, "a message is refused"))
    }

    /// The places that it takes when its own share of them is used up.
    pub fn places(&self) -> &Arc<SharedPlaces> {
        &self.places
    }

    async fn wait(self: &Arc<Self>, owner: &Owner) -> Result<TurnPermit, A2aError> {
        // Counted while it waits, so that one caller cannot take all the places of those that wait.
        let caller = self.caller(owner).await?;
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(TurnPermit { _permit: permit, _caller: caller });
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| self.full())?;
        match timeout(MAX_WAIT, Arc::clone(&self.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(TurnPermit { _permit: permit, _caller: caller }),
            _ => Err(self.full()),
        }
    }

    /// The same without waiting for other turns.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is none.
    pub(crate) async fn try_take(self: &Arc<Self>, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let caller = self.caller(owner).await?;
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| self.full())?;
        Ok(TurnPermit { _permit: permit, _caller: caller })
    }

    async fn caller(self: &Arc<Self>, owner: &Owner) -> Result<Caller, A2aError> {
        let is_own = owner.principal.is_empty() || self.is_own(owner)?;
        // It is counted from here on, as an own one until it has a place.
        let limiter = Arc::clone(self);
        let caller = Caller { limiter, owner: owner.clone(), place: None };
        if is_own {
            return Ok(caller);
        }
        // In a task of its own: a client that goes away meanwhile must leave no place behind, and stays counted as long as the
        // store works for it.
        tokio::spawn(caller.placed()).await.map_err(|error| fault::internal(&error))?
    }

    /// Counts one more turn of the caller. `false` when it needs a place among all processes.
    fn is_own(&self, owner: &Owner) -> Result<bool, A2aError> {
        let mut by_caller = self.by_caller();
        let turns = by_caller.entry(owner.clone()).or_default();
        if turns.all >= self.per_caller {
            return Err(self.has_enough());
        }
        turns.all += 1;
        turns.own += 1;
        Ok(turns.own <= self.places.own(self.per_caller))
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

    fn has_enough(&self) -> A2aError {
        overloaded(format!("{} turns of yours run already", self.per_caller))
    }

    fn full(&self) -> A2aError {
        overloaded(format!("{} turns run already", self.in_all))
    }

    fn by_caller(&self) -> MutexGuard<'_, HashMap<Owner, Turns>> {
        self.by_caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded(reason: String) -> A2aError {
    A2aError::Overloaded { reason }
}

impl Caller {
    /// Takes a place among all processes.
    async fn placed(mut self) -> Result<Self, A2aError> {
        let limiter = Arc::clone(&self.limiter);
        let taken = limiter.places.take(&self.owner, limiter.per_caller).await;
        let place = taken.map_err(fault::of_store)?.ok_or_else(|| limiter.has_enough())?;
        limiter.change(&self.owner, |turns| turns.own -= 1);
        self.place = Some(place);
        Ok(self)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let is_own = self.place.is_none();
        self.limiter.change(&self.owner, |turns| {
            turns.all -= 1;
            turns.own -= usize::from(is_own);
        });
    }
}
