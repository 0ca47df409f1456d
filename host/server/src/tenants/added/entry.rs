//! One tenant as far as it is known: what is stored of it, and what serves it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use annex_tasks::StoredTenant;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Leaving, Loaded, TenantLoader};
use crate::tenants::directory::TenantFailure;

/// The outcome of loading it; `None` while that is under way.
pub(super) type Flight<T> = watch::Receiver<Option<Result<T, TenantFailure>>>;

pub(super) struct Entry<T> {
    /// The stored tenant; empty until it is read.
    pub(super) described: OnceLock<Described>,
    /// The load of it; empty until somebody asks.
    pub(super) flight: OnceLock<Flight<T>>,
    /// When somebody asked last.
    used: Mutex<Instant>,
    /// True once a caller has asked for it, and not just for its card.
    called: AtomicBool,
    /// When it may be tried again; empty unless loading it has failed.
    try_again: OnceLock<Instant>,
}

/// The tenant that is stored under the name.
pub(super) enum Described {
    Absent,
    There(There),
}

pub(super) struct There {
    pub(super) tenant: Arc<StoredTenant>,
    /// The principals that may call it; `None` for all. Nobody may where the text cannot be read.
    callers: Option<HashSet<String>>,
}

impl Described {
    pub(super) async fn there<T>(tenant: StoredTenant, loader: &dyn TenantLoader<T>) -> Self {
        let callers = loader.callers(tenant.config.clone()).await.unwrap_or_else(|_| Some(HashSet::new()));
        Self::There(There { tenant: Arc::new(tenant), callers })
    }
}

impl There {
    pub(super) fn admits(&self, caller: &str) -> bool {
        self.callers.as_ref().is_none_or(|callers| callers.contains(caller))
    }
}

impl<T: Loaded> Entry<T> {
    pub(super) fn new() -> Self {
        Self {
            described: OnceLock::new(),
            flight: OnceLock::new(),
            used: Mutex::new(Instant::now()),
            called: AtomicBool::new(false),
            try_again: OnceLock::new(),
        }
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// The time since somebody asked for it.
    pub(super) fn idle(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(super) fn note_called(&self) {
        self.called.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Loading it has failed, and is not to be tried again for so long.
    pub(super) fn fails_for(&self, pause: Duration) {
        let _ = self.try_again.set(Instant::now() + pause);
    }

    /// True unless loading it failed a moment ago.
    pub(super) fn may_be_tried(&self) -> bool {
        self.try_again.get().is_none_or(|again| *again <= Instant::now())
    }

    /// The outcome of loading it; `None` while it is not loaded.
    pub(super) fn loaded(&self) -> Option<Result<T, TenantFailure>> {
        self.flight.get()?.borrow().clone()
    }

    /// True if nobody would miss it: it is not being loaded, and nothing uses what serves it.
    pub(super) fn can_go(&self) -> bool {
        match self.flight.get().map(watch::Receiver::borrow) {
            Some(loaded) => match &*loaded {
                Some(Ok(serving)) => !serving.is_in_use(),
                // Without it the next one who asks would have it loaded at once.
                Some(Err(_)) => self.may_be_tried(),
                None => false,
            },
            None => true,
        }
    }

    /// True if it was read before the change of this number, or is not read yet.
    pub(super) fn is_before(&self, rev: u64) -> bool {
        match self.described.get() {
            Some(Described::There(there)) => there.tenant.rev < rev,
            Some(Described::Absent) | None => true,
        }
    }

    /// Lets go of what serves it: at once, or when it is loaded.
    pub(super) fn leave(&self, name: String, why: Leaving) {
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
