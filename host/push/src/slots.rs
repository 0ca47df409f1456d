//! The number of requests that are under way, in all and to one host.
//!
//! Without the second bound a host that never answers would in time hold all the slots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct Slots {
    all: Arc<Semaphore>,
    per_host: usize,
    hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Leave to make one request, until it is dropped.
pub(crate) struct Slot {
    _host: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(all: usize, per_host: usize) -> Self {
        let all = Arc::new(Semaphore::new(all.clamp(1, Semaphore::MAX_PERMITS)));
        Self { all, per_host: per_host.clamp(1, Semaphore::MAX_PERMITS), hosts: Mutex::default() }
    }

    /// Waits for a slot; `host` includes the port. There is always one in the end: the semaphores are never closed.
    pub(crate) async fn acquire(&self, host: &str) -> Option<Slot> {
        // The slot of the host comes first: whoever waits for it holds none of the slots for all.
        let host = self.host(host).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Slot { _host: host, _all: all })
    }

    fn host(&self, host: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = hosts.get(host).and_then(Weak::upgrade) {
            return semaphore;
        }
        // Hosts that nobody uses any more go before the map would grow.
        if hosts.len() == hosts.capacity() {
            hosts.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.per_host));
        hosts.insert(host.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}
