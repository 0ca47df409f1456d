//! Room for turns: how many there may be at once, in all and per caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::A2aError;
use annex_tasks::Owner;

/// How many turns run or wait for their context.
pub(crate) struct Places {
    in_all: usize,
    per_caller: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    in_all: usize,
    /// Of authenticated callers only.
    by_caller: HashMap<Owner, usize>,
}

/// The place of one turn, free again when this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    owner: Owner,
}

impl Places {
    pub(crate) fn new(in_all: usize, per_caller: usize) -> Arc<Self> {
        Arc::new(Self { in_all, per_caller, taken: Mutex::default() })
    }

    /// Takes a place for a turn of this caller. Anonymous clients cannot be told apart, so they share what there is.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is none.
    pub(crate) fn take(self: &Arc<Self>, owner: &Owner) -> Result<Place, A2aError> {
        let mut taken = self.lock();
        if taken.in_all >= self.in_all {
            return Err(overloaded(format!("{} turns run already", self.in_all)));
        }
        if !owner.principal.is_empty() {
            let own = taken.by_caller.entry(owner.clone()).or_default();
            if *own >= self.per_caller {
                return Err(overloaded(format!("{} turns of yours run already", self.per_caller)));
            }
            *own += 1;
        }
        taken.in_all += 1;
        Ok(Place { places: Arc::clone(self), owner: owner.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded(reason: String) -> A2aError {
    tracing::warn!(reason, "a message is refused");
    A2aError::Overloaded { reason }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.in_all -= 1;
        let Some(own) = taken.by_caller.get_mut(&self.owner) else { return };
        *own -= 1;
        if *own == 0 {
            taken.by_caller.remove(&self.owner);
        }
    }
}
