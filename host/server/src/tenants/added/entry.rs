//! One added tenant in memory: its stored text and the parts that serve it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use annex_tenants::StoredTenant;
use tokio::sync::watch;
use tokio::time::Instant;

use super::TenantLoader;
use crate::tenants::directory::TenantFailure;
use crate::tenants::serving::{ServingParts, UnloadReason};

/// The outcome of a load. `None` while the load runs.
pub(super) type Flight<T> = watch::Receiver<Option<Result<T, TenantFailure>>>;

pub(super) struct Entry<T> {
    /// The result of reading the tenant from the store. Empty until the tenant is read.
    pub(super) lookup: OnceLock<StoreLookup>,
    /// The load of the tenant. Empty until a request needs the tenant.
    pub(super) flight: OnceLock<Flight<T>>,
    /// The time of the last request for the tenant.
    used: Mutex<Instant>,
    /// True once a caller has sent a request to the tenant. Reading the tenant's Agent Card does not count.
    called: AtomicBool,
    /// The earliest time of the next load. Empty unless loading has failed.
    try_again: OnceLock<Instant>,
}

/// The result of looking a name up in the store.
pub(super) enum StoreLookup {
    Absent,
    Found(FoundTenant),
}

pub(super) struct FoundTenant {
    pub(super) tenant: Arc<StoredTenant>,
    /// The principals that may call the tenant. `None` if all may. An empty set if the text cannot be read.
    callers: Option<HashSet<String>>,
}

impl StoreLookup {
    pub(super) async fn found<T>(tenant: StoredTenant, loader: &dyn TenantLoader<T>) -> Self {
        let callers = loader.callers(tenant.config.clone()).await.unwrap_or_else(|_| Some(HashSet::new()));
        Self::Found(FoundTenant { tenant: Arc::new(tenant), callers })
    }
}

impl FoundTenant {
    pub(super) fn admits(&self, caller: &str) -> bool {
        self.callers.as_ref().is_none_or(|callers| callers.contains(caller))
    }
}

impl<T: ServingParts> Entry<T> {
    pub(super) fn new() -> Self {
        Self {
            lookup: OnceLock::new(),
            flight: OnceLock::new(),
            used: Mutex::new(Instant::now()),
            called: AtomicBool::new(false),
            try_again: OnceLock::new(),
        }
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// The time since the last request for the tenant.
    pub(super) fn idle(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(super) fn note_called(&self) {
        self.called.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Records that loading has failed. The next load starts after `pause` at the earliest.
    pub(super) fn fails_for(&self, pause: Duration) {
        let _ = self.try_again.set(Instant::now() + pause);
    }

    /// True unless the pause after a failed load is still running.
    pub(super) fn may_be_tried(&self) -> bool {
        self.try_again.get().is_none_or(|again| *again <= Instant::now())
    }

    /// The outcome of the load. `None` before the load and while it runs.
    pub(super) fn loaded(&self) -> Option<Result<T, TenantFailure>> {
        self.flight.get()?.borrow().clone()
    }

    /// True if the tenant can be unloaded: it is not being loaded, and no request or turn uses it.
    pub(super) fn can_go(&self) -> bool {
        match self.flight.get().map(watch::Receiver::borrow) {
            Some(loaded) => match &*loaded {
                Some(Ok(serving)) => !serving.is_in_use(),
                // The failure stays until its pause ends. Without the entry, the next request would load the tenant at
                // once.
                Some(Err(_)) => self.may_be_tried(),
                None => false,
            },
            None => true,
        }
    }

    /// True if the tenant in this entry has a revision before `rev`, or was not read from the store yet.
    pub(super) fn is_before(&self, rev: u64) -> bool {
        match self.lookup.get() {
            Some(StoreLookup::Found(found)) => found.tenant.rev < rev,
            Some(StoreLookup::Absent) | None => true,
        }
    }

    /// Ends the use of the tenant. If the tenant is being loaded, its use ends after the load.
    pub(super) fn leave(&self, name: String, why: UnloadReason) {
        match self.loaded() {
            Some(Ok(serving)) => serving.leave(&name, why),
            Some(Err(_)) => {}
            None => {
                let Some(mut flight) = self.flight.get().cloned() else { return };
                tokio::spawn(async move {
                    let loaded = flight.wait_for(Option::is_some).await.ok().and_then(|loaded| loaded.clone());
                    if let Some(Ok(serving)) = loaded {
                        serving.leave(&name, why);
                    }
                });
            }
        }
    }
}
