//! The stored sessions, state and keys of a tenant, as of the last count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use annex_conversation::Holdings;

/// The divisor that limits the time for counting: counting takes at most one twentieth of the time.
const SHARE: u32 = 20;

/// The stored sessions, state and keys of a tenant by the last count. All numbers are zero before the first count.
#[derive(Debug, Default)]
pub(super) struct Held {
    sessions: AtomicU64,
    state_bytes: AtomicU64,
    keys: AtomicU64,
    /// The earliest time of the next count. `None` before the first count.
    due: Mutex<Option<Instant>>,
}

impl Held {
    pub(super) fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Adds a session that is about to be created. The next count corrects the number if the session was not created.
    pub(super) fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn state_bytes(&self) -> u64 {
        self.state_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn set_conversations(&self, holdings: Holdings) {
        self.sessions.store(holdings.conversations, Ordering::Relaxed);
        self.state_bytes.store(holdings.state_bytes, Ordering::Relaxed);
    }

    pub(super) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    pub(super) fn is_due(&self) -> bool {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|due| due <= Instant::now())
    }

    /// Called after a count that took `took`. The longer a count took, the later the next one begins.
    pub(super) fn counted(&self, took: Duration) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + took * SHARE);
    }
}
