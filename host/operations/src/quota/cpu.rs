//! The CPU time that is charged against a limit, and the debt beyond the limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bucket::{Bucket, nanos, times};

/// The CPU time of a tenant or of a caller, against a limit.
#[derive(Debug)]
pub(super) struct CpuDebt {
    bucket: Bucket,
    /// The CPU time that was already charged or is exempt, in nanoseconds.
    charged: AtomicU64,
}

impl CpuDebt {
    pub(super) fn new() -> Self {
        Self { bucket: Bucket::new(), charged: AtomicU64::new(0) }
    }

    /// Charges the CPU time since the last charge. `busy` is the sum of all CPU time.
    ///
    /// # Errors
    /// The time until the debt is paid back, if there is one.
    pub(super) fn charge(&self, busy: Duration, limit: u64, processes: usize) -> Result<(), Duration> {
        let busy = nanos(busy);
        // Concurrent calls do not charge the same time twice, because each takes the difference atomically.
        let new = busy.saturating_sub(self.charged.fetch_max(busy, Ordering::Relaxed));
        // The cost is the time in which the limit allows this much CPU time.
        self.bucket.charge(times(Duration::from_nanos(new), processes.saturating_mul(1_000), limit))
    }

    /// Makes the CPU time up to the sum `busy` exempt.
    pub(super) fn exempt(&self, busy: Duration) {
        self.charged.fetch_max(nanos(busy), Ordering::Relaxed);
    }

    /// Converts the debt from the limit `before` to the limit `after`.
    pub(super) fn rescale(&self, before: Option<u64>, after: Option<u64>) {
        self.bucket.rescale(before, after);
    }

    /// True if there is no charge that is not paid back.
    pub(super) fn is_paid(&self) -> bool {
        self.bucket.is_full()
    }
}
