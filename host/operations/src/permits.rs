//! Permits for turns: how many there may be at once, in all and per caller. Each tenant has permits of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_protocol::A2aError;
use annex_tasks::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

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
    by_caller: Mutex<HashMap<Owner, usize>>,
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
}

impl TurnLimiter {
    pub fn new(in_all: usize, per_caller: usize) -> Arc<Self> {
        let in_all = in_all.min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(in_all));
        let waiting = Semaphore::new(in_all);
        Arc::new(Self { in_all, per_caller, free, waiting, by_caller: Mutex::default() })
    }

    /// Takes a permit for a turn of this caller, and waits for one for a second. Anonymous clients cannot be told apart, so
    /// they share what there is.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when none becomes free, or at once when the caller has as many as it may.
    pub(crate) async fn take(self: &Arc<Self>, owner: &Owner) -> Result<TurnPermit, A2aError> {
        if let Ok(permit) = self.try_take(owner) {
            return Ok(permit);
        }
        let taken = self.wait(owner).await;
        taken.inspect_err(|error| tracing::warn!(target: crate::LOG_TARGET, %error, "a message is refused"))
    }

    async fn wait(self: &Arc<Self>, owner: &Owner) -> Result<TurnPermit, A2aError> {
        // Counted while it waits, so that one caller cannot take all the places of those that wait.
        let caller = self.caller(owner)?;
        let _waiting = self.waiting.try_acquire().map_err(|_| self.full())?;
        match timeout(MAX_WAIT, Arc::clone(&self.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(TurnPermit { _permit: permit, _caller: caller }),
            _ => Err(self.full()),
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is none.
    pub(crate) fn try_take(self: &Arc<Self>, owner: &Owner) -> Result<TurnPermit, A2aError> {
        let caller = self.caller(owner)?;
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| self.full())?;
        Ok(TurnPermit { _permit: permit, _caller: caller })
    }

    fn caller(self: &Arc<Self>, owner: &Owner) -> Result<Caller, A2aError> {
        if !owner.principal.is_empty() {
            let mut by_caller = self.by_caller();
            let own = by_caller.entry(owner.clone()).or_default();
            if *own >= self.per_caller {
                return Err(overloaded(format!("{} turns of yours run already", self.per_caller)));
            }
            *own += 1;
        }
        Ok(Caller { limiter: Arc::clone(self), owner: owner.clone() })
    }

    fn full(&self) -> A2aError {
        overloaded(format!("{} turns run already", self.in_all))
    }

    fn by_caller(&self) -> MutexGuard<'_, HashMap<Owner, usize>> {
        self.by_caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded(reason: String) -> A2aError {
    A2aError::Overloaded { reason }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut by_caller = self.limiter.by_caller();
        let Some(own) = by_caller.get_mut(&self.owner) else { return };
        *own -= 1;
        // The map is as large as the callers that have a turn, and not as all that ever had one.
        if *own == 0 {
            by_caller.remove(&self.owner);
        }
    }
}
