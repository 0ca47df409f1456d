//! Places for turns that all processes share.
//!
//! Each process may run a share of a caller's limit without any query. The rest of the limit is kept in the store as
//! places, and a turn beyond the share takes one of them. A caller within its share thus costs no statement, and a
//! single process has the whole limit as its share.

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

/// The period of counting the live processes.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two attempts to release a place.
const AGAIN: Duration = Duration::from_secs(1);
/// The most attempts to release a place. After that the place is lost until this process ends.
const ATTEMPTS: usize = 600;

/// The shared places for all tenants of a process.
pub struct SharedPlaces {
    store: Arc<dyn TaskStore>,
    /// The number of live processes at the last query.
    processes: AtomicUsize,
    /// One lock per caller.
    locks: KeyedLocks,
}

/// A shared place. Dropping it releases the place.
pub(crate) struct Place {
    store: Arc<dyn TaskStore>,
    id: String,
}

impl SharedPlaces {
    /// Assumes a single process until the first query.
    pub fn new(store: Arc<dyn TaskStore>) -> Arc<Self> {
        Arc::new(Self { store, processes: AtomicUsize::new(1), locks: KeyedLocks::new() })
    }

    /// Counts the live processes.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn look(&self) -> Result<(), StoreError> {
        if let Some(places) = self.store.places() {
            self.processes.store(places.processes().await?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Counts the live processes periodically until `stop` is cancelled. Returns at once if only one process can use
    /// the store.
    pub async fn watch(&self, stop: CancellationToken) {
        if self.store.places().is_none() {
            return;
        }
        let look = || async {
            // The error is ignored: the poll for other processes' tasks already logs failures of the store.
            let _ = self.look().await;
            Ok(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
    }

    /// The number of live processes at the last query, including this one.
    pub(crate) fn processes(&self) -> usize {
        self.processes.load(Ordering::Relaxed).max(1)
    }

    /// The share of this process in a limit of `turns`. All shares together are a quarter of the limit.
    pub(crate) fn own(&self, turns: usize) -> usize {
        match self.processes.load(Ordering::Relaxed) {
            0 | 1 => turns,
            processes => turns / processes.saturating_mul(4),
        }
    }

    /// Takes a place beyond the shares of all processes. `None` if all are taken. The caller must await the result to
    /// the end.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn take(&self, owner: &Owner, turns: usize) -> Result<Option<Place>, StoreError> {
        let Some(places) = self.store.places() else { return Ok(None) };
        let processes = self.processes.load(Ordering::Relaxed);
        let left = turns.saturating_sub(self.own(turns).saturating_mul(processes));
        // One request per caller at a time: requests for one caller wait for the same lock in the database, and each
        // would occupy a connection.
        let _locked = self.locks.lock(owner).await;
        let id = Uuid::now_v7().to_string();
        let taken = places.take(owner, &id, left).await;
        // The store may have taken the place although the call failed. Dropping `Place` then releases it.
        let place = (!matches!(taken, Ok(false))).then(|| Place { store: Arc::clone(&self.store), id });
        taken.map(|_| place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Without a runtime, the process is ending, and its places end with its lease.
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
            tracing::warn!(target: crate::LOG_TARGET, "the shared place of a turn is not released, because the database has failed for too long");
        }));
    }
}
