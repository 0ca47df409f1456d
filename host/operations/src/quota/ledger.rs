//! A tenant's usage. It is kept when the tenant is unloaded or its config changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use annex_runtime::BusyTime;
use annex_tasks::Consumption;

use super::TenantQuota;
use super::bucket::{Bucket, nanos};
use super::held::Held;
use super::rates::Rates;
use super::tokens::Tokens;
use crate::permits::TurnCounts;

/// The use of one tenant in this process.
pub struct Ledger {
    pub(super) tenant: Arc<str>,
    /// The quota in effect, or the last one that was.
    quota: Mutex<TenantQuota>,
    pub(super) requests: Bucket,
    /// Reads of the card, which anybody may make. They take nothing from the requests of callers.
    pub(super) card_reads: Bucket,
    cpu: Bucket,
    /// The CPU time that the bucket knows of, in nanoseconds.
    charged: AtomicU64,
    busy: BusyTime,
    pub(super) rates: Rates,
    pub(super) held: Held,
    pub(super) tokens: Tokens,
    /// True if something was asked for since it was looked at last.
    was_asked: AtomicBool,
    /// The turns that run, also those that an earlier text began.
    turns: Mutex<Weak<TurnCounts>>,
    /// The use that the store knows of.
    written: Mutex<Consumption>,
}

impl Ledger {
    pub(super) fn new(tenant: &str) -> Self {
        let busy = BusyTime::default();
        Self {
            tenant: tenant.into(),
            quota: Mutex::default(),
            requests: Bucket::new(),
            card_reads: Bucket::new(),
            cpu: Bucket::new(),
            charged: AtomicU64::new(0),
            rates: Rates::new(&busy),
            busy,
            held: Held::default(),
            tokens: Tokens::new(),
            // Data that the tenant has stored before is counted at once.
            was_asked: AtomicBool::new(true),
            turns: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// The use that the store does not know of yet.
    pub(super) fn unwritten(&self) -> Consumption {
        let used = Consumption {
            requests: self.rates.all_requests(),
            refused: self.rates.refused(),
            cpu_micros: u64::try_from(self.busy.read().as_micros()).unwrap_or(u64::MAX),
            tokens: self.tokens.all(),
        };
        used.since(&self.written())
    }

    /// Notes that the store knows of this, which it did not before.
    pub(super) fn note_written(&self, used: &Consumption) {
        self.written().add(used);
    }

    fn written(&self) -> MutexGuard<'_, Consumption> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that its extensions take.
    #[must_use]
    pub fn busy(&self) -> BusyTime {
        self.busy.clone()
    }

    pub(super) fn quota(&self) -> TenantQuota {
        self.quota.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a quota into effect. Debt under the quota before stays, and is paid back at the pace of the new one.
    pub(super) fn set_quota(&self, quota: &TenantQuota) {
        let mut before = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        for bucket in [&self.requests, &self.card_reads] {
            bucket.rescale(before.requests_per_second, quota.requests_per_second);
        }
        self.cpu.rescale(before.cpu_ms_per_second, quota.cpu_ms_per_second);
        *before = quota.clone();
        // Loading it takes time too. Whoever had it loaded is not always one of its callers, so they do not pay for that.
        self.charged.fetch_max(nanos(self.busy.read()), Ordering::Relaxed);
    }

    /// Charges the CPU time that was used since it was charged last.
    ///
    /// # Errors
    /// The time until that is paid back, where more was used than there was.
    pub(super) fn charge_cpu(&self, limit: u64, processes: usize) -> Result<(), Duration> {
        let busy = nanos(self.busy.read());
        // Of several at once, each charges what nobody has charged.
        let new = busy.saturating_sub(self.charged.fetch_max(busy, Ordering::Relaxed));
        // A second of it takes so many seconds to come.
        self.cpu.charge(times(Duration::from_nanos(new), processes.saturating_mul(1_000), limit))
    }

    /// Charges CPU time that is not charged yet, under the limits in effect so far.
    pub(super) fn settle_cpu(&self, processes: usize) {
        if let Some(limit) = self.quota().cpu_ms_per_second {
            let _ = self.charge_cpu(limit, processes);
        }
    }

    pub(super) fn note_asked(&self) {
        // Read first: nearly always it is noted, and a write takes the cache line from the other cores.
        if !self.was_asked.load(Ordering::Relaxed) {
            self.was_asked.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn take_asked(&self) -> bool {
        self.was_asked.swap(false, Ordering::Relaxed)
    }

    /// True if the ledger is as a new one. Buckets fill by themselves, so this comes true for each tenant that is not used.
    pub(super) fn is_as_new(&self, processes: usize) -> bool {
        self.settle_cpu(processes);
        let buckets = [&self.requests, &self.card_reads, &self.cpu];
        let runs = self.turns.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0;
        let is_written = self.unwritten() == Consumption::default();
        let is_settled = is_written && self.tokens.count().read() == 0;
        !runs && buckets.into_iter().all(Bucket::is_full) && is_settled && self.held.is_due()
    }

    /// The turns that run, or `new` ones where there are none.
    pub(crate) fn turns(&self, new: impl FnOnce() -> TurnCounts) -> Arc<TurnCounts> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.upgrade().unwrap_or_else(|| {
            let new = Arc::new(new());
            *turns = Arc::downgrade(&new);
            new
        })
    }

    /// To be called about once a second.
    pub(super) fn sample(&self) {
        self.rates.sample(&self.busy);
    }
}

/// The time, so many times over, divided by a limit that is not zero.
pub(super) fn times(time: Duration, factor: usize, limit: u64) -> Duration {
    let product = time.as_nanos().saturating_mul(factor as u128) / u128::from(limit.max(1));
    Duration::from_nanos(u64::try_from(product).unwrap_or(u64::MAX))
}
