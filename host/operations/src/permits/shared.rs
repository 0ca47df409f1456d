//! Places of turns among all processes that share the tasks.
//!
//! Of the turns that a caller may have, each process runs a share without asking anybody. What is left when all have their
//! share is counted in the store: a turn beyond the share takes one of these places. So no turn of a caller that keeps within
//! a share costs a statement, and one process alone has them all.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annex_fairness::of_same_tenant;
use annex_protocol::Owner;
use annex_tasks::{StoreError, TaskStore};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::keyed_locks::KeyedLocks;
use crate::looks::look_until;

/// The time between two looks at the processes that are there.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two attempts to give a place back.
const AGAIN: Duration = Duration::from_secs(1);
/// So many, after which the place is gone as long as this process lives.
const ATTEMPTS: usize = 600;

/// The places that this process may take, of all its tenants.
pub struct SharedPlaces {
    store: Arc<dyn TaskStore>,
    /// The processes that were alive when it was looked last.
    processes: AtomicUsize,
    /// By caller.
    locks: KeyedLocks,
}

/// A place of a turn, given back when this is dropped.
pub(crate) struct Place {
    store: Arc<dyn TaskStore>,
    id: String,
}

impl SharedPlaces {
    /// As if this process was alone, until it has looked.
    pub fn new(store: Arc<dyn TaskStore>) -> Arc<Self> {
        Arc::new(Self { store, processes: AtomicUsize::new(1), locks: KeyedLocks::new() })
    }

    /// Looks how many processes there are.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn look(&self) -> Result<(), StoreError> {
        if let Some(places) = self.store.places() {
            self.processes.store(places.processes().await?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Looks again and again until it is told to stop; at once where there is one process.
    pub async fn watch(&self, stop: CancellationToken) {
        if self.store.places().is_none() {
            return;
        }
        let look = || async {
            // Whoever looks at the tasks of other processes says that the store fails.
            let _ = self.look().await;
            Ok(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
    }

    /// The processes that were alive when it was looked last, this one among them.
    pub(crate) fn processes(&self) -> usize {
        self.processes.load(Ordering::Relaxed).max(1)
    }

    /// Of so many turns, those that this process runs without asking. All shares together are a quarter of the turns.
    pub(crate) fn own(&self, turns: usize) -> usize {
        match self.processes.load(Ordering::Relaxed) {
            0 | 1 => turns,
            processes => turns / processes.saturating_mul(4),
        }
    }

    /// Takes a place beside the shares of all processes. `None` when there is none. The caller must not give up the wait.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn take(&self, owner: &Owner, turns: usize) -> Result<Option<Place>, StoreError> {
        let Some(places) = self.store.places() else { return Ok(None) };
        let processes = self.processes.load(Ordering::Relaxed);
        let left = turns.saturating_sub(self.own(turns).saturating_mul(processes));
        // One after the other: those of one caller wait for one lock of the database, each with a connection that others want.
        let _locked = self.locks.lock(owner).await;
        let id = Uuid::now_v7().to_string();
        let taken = places.take(owner, &id, left).await;
        // It may be taken although it seemed to fail, and is given back then.
        let place = (!matches!(taken, Ok(false))).then(|| Place { store: Arc::clone(&self.store), id });
        taken.map(|_| place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where the runtime is gone, so is the lease of the process, and the place with it.
        let Ok(runtime) = Handle::try_current() else { return };
        let store = Arc::clone(&self.store);
        let id = mem::take(&mut self.id);
        runtime.spawn(of_same_tenant(async move {
            let Some(places) = store.places() else { return };
            for _ in 0..ATTEMPTS {
                match places.give_back(&id).await {
                    Ok(()) => return,
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
            tracing::warn!(target: crate::LOG_TARGET, "a place of a turn is not given back, because the database is away for too long");
        }));
    }
}
