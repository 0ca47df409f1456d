//! The usage of a tenant in the last second in this process, for operators.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use annex_runtime::BusyTime;

/// Counters that only grow, and their difference over the last second.
#[derive(Debug)]
pub(super) struct Rates {
    requests: AtomicU64,
    refused: AtomicU64,
    before: Mutex<Sample>,
    /// The rates between the last two samples.
    requests_per_second: AtomicU64,
    cpu_ms_per_second: AtomicU64,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    requests: u64,
    busy: Duration,
}

impl Rates {
    pub(super) fn new(busy: &BusyTime) -> Self {
        Self {
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            before: Mutex::new(Sample { at: Instant::now(), requests: 0, busy: busy.read() }),
            requests_per_second: AtomicU64::new(0),
            cpu_ms_per_second: AtomicU64::new(0),
        }
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of all requests.
    pub(super) fn all_requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The number of refused requests.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests_per_second.load(Ordering::Relaxed)
    }

    pub(super) fn cpu_ms(&self) -> u64 {
        self.cpu_ms_per_second.load(Ordering::Relaxed)
    }

    /// Computes the rates since the last call. Called about once a second.
    pub(super) fn sample(&self, busy: &BusyTime) {
        let now = Sample { at: Instant::now(), requests: self.requests.load(Ordering::Relaxed), busy: busy.read() };
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = (now.at - before.at).as_secs_f64().max(0.001);
        let requests = now.requests.saturating_sub(before.requests) as f64 / seconds;
        let cpu = now.busy.saturating_sub(before.busy).as_secs_f64() * 1_000.0 / seconds;
        *before = now;
        // Both values are far below the largest number.
        self.requests_per_second.store(requests.round() as u64, Ordering::Relaxed);
        self.cpu_ms_per_second.store(cpu.round() as u64, Ordering::Relaxed);
    }
}
