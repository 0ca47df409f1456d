//! Numbers of the things that a tenant keeps in the stores, as they were counted last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use annex_session::Holdings;

/// Counting takes at most this part of the time.
const SHARE: u32 = 20;

/// The numbers, none of which is known before the first count.
#[derive(Debug, Default)]
pub(super) struct Held {
    sessions: AtomicU64,
    state_bytes: AtomicU64,
    keys: AtomicU64,
    /// The next count comes no sooner.
    due: Mutex<Option<Instant>>,
}

impl Held {
    pub(super) fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// One that is made now. The next count knows whether it was.
    pub(super) fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn state_bytes(&self) -> u64 {
        self.state_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn set_sessions(&self, Holdings { sessions, state_bytes }: Holdings) {
        self.sessions.store(sessions, Ordering::Relaxed);
        self.state_bytes.store(state_bytes, Ordering::Relaxed);
    }

    pub(super) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    pub(super) fn is_due(&self) -> bool {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|due| due <= Instant::now())
    }

    /// It was counted, and that took so long. A tenant that has much, which takes long to count, is counted less often.
    pub(super) fn counted(&self, took: Duration) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + took * SHARE);
    }
}
