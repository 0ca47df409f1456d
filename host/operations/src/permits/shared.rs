//! Places for turns that all processes share.
//!
//! Each process may run a share of a caller's turns without any query. The rest of the caller's limit is kept in the
//! database as places, and a turn beyond the share takes one of these places. If only one process is alive, its share
//! is the whole limit.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annex_fairness::of_same_tenant;
use annex_leases::{TurnPlaces, TurnPlacesError};
use annex_protocol::Owner;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::keyed_locks::KeyedLocks;
use crate::looks::look_until;

/// The time between two counts of the live processes.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two attempts to release a place.
const AGAIN: Duration = Duration::from_secs(1);
/// The maximum number of attempts to release a place. After that the place is lost until this process ends.
const ATTEMPTS: usize = 600;

/// The shared places for all tenants of a process.
pub struct SharedPlaces {
    /// The places in the database. `None` if no other process shares the database.
    places: Option<Arc<TurnPlaces>>,
    /// The number of live processes at the last query.
    processes: AtomicUsize,
    /// A lock per caller: one request of each caller at a time takes a place in the database.
    locks: KeyedLocks,
}

/// A shared place. Dropping it releases the place.
pub(crate) struct SharedPlace {
    places: Arc<TurnPlaces>,
    id: String,
}

impl SharedPlaces {
    /// Creates the shared places of a process. Until the first query, the process counts itself as the only live process.
    pub fn new(places: Option<Arc<TurnPlaces>>) -> Arc<Self> {
        Arc::new(Self { places, processes: AtomicUsize::new(1), locks: KeyedLocks::new() })
    }

    /// Counts the live processes.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn look(&self) -> Result<(), TurnPlacesError> {
        if let Some(places) = &self.places {
            self.processes.store(places.processes().await?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Counts the live processes periodically until `stop` is cancelled. Returns at once if no other process shares the
    /// database.
    pub async fn watch(&self, stop: CancellationToken) {
        if self.places.is_none() {
            return;
        }
        let look = || async {
            // The error is ignored: the poll for other processes' tasks already logs failures of the database.
            let _ = self.look().await;
            Ok::<_, TurnPlacesError>(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
    }

    /// True if other processes are alive now.
    pub(crate) async fn has_others(&self) -> bool {
        match &self.places {
            // The number includes this process.
            Some(places) => places.processes().await.is_ok_and(|processes| processes > 1),
            None => false,
        }
    }

    /// True if other processes may share the database.
    pub(crate) fn is_shared(&self) -> bool {
        self.places.is_some()
    }

    /// The number of live processes at the last query, including this process.
    pub(crate) fn processes(&self) -> usize {
        self.processes.load(Ordering::Relaxed).max(1)
    }

    /// The number of turns that this process may run without a place in the database: its share. `turns` is the limit
    /// over all processes. The share of a single process is the whole limit. The shares of several processes are
    /// together at most a quarter of the limit.
    pub(crate) fn own(&self, turns: usize) -> usize {
        match self.processes.load(Ordering::Relaxed) {
            0 | 1 => turns,
            processes => turns / processes.saturating_mul(4),
        }
    }

    /// Takes a place in the database, for a turn beyond the share of this process. `None` if all places are taken. The caller
    /// must poll the future to its end and not drop it earlier.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn take(&self, owner: &Owner, turns: usize) -> Result<Option<SharedPlace>, TurnPlacesError> {
        let Some(places) = &self.places else { return Ok(None) };
        let processes = self.processes.load(Ordering::Relaxed);
        let left = turns.saturating_sub(self.own(turns).saturating_mul(processes));
        // One request per caller at a time: requests for one caller wait for the same lock in the database, and each
        // would occupy a connection.
        let _locked = self.locks.lock(owner).await;
        let id = Uuid::now_v7().to_string();
        let taken = places.take(&owner.tenant, &owner.principal, &id, left).await;
        // The place may be taken although the call failed. Dropping `SharedPlace` then releases it.
        let place = (!matches!(taken, Ok(false))).then(|| SharedPlace { places: Arc::clone(places), id });
        taken.map(|_| place)
    }
}

impl Drop for SharedPlace {
    fn drop(&mut self) {
        // Without a runtime, the process is ending, and its places end with its lease.
        let Ok(runtime) = Handle::try_current() else { return };
        let places = Arc::clone(&self.places);
        let id = mem::take(&mut self.id);
        runtime.spawn(of_same_tenant(async move {
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
