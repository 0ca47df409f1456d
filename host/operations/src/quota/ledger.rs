//! The usage of a tenant. It survives unloading the tenant and changing its config.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use annex_runtime::BusyTime;
use annex_tenants::Consumption;

use super::bucket::Bucket;
use super::callers::Callers;
use super::cpu::CpuDebt;
use super::held::Held;
use super::limits::TenantQuota;
use super::rates::Rates;
use super::tokens::Tokens;
use crate::permits::TurnCounts;

/// The usage of one tenant in this process.
pub struct Ledger {
    pub(super) tenant: Arc<str>,
    /// The current quota. For an unloaded tenant, the last quota.
    quota: Mutex<TenantQuota>,
    pub(super) requests: Bucket,
    /// Limits the reads of the Agent Card, which everyone may make. These reads do not count as requests of callers.
    pub(super) card_reads: Bucket,
    cpu: CpuDebt,
    busy: BusyTime,
    pub(super) rates: Rates,
    pub(super) held: Held,
    pub(super) tokens: Tokens,
    /// The callers of the tenant. Empty if callers have no quota.
    pub(super) callers: Callers,
    /// True if the tenant got a request since its last update.
    was_asked: AtomicBool,
    /// The running turns of the tenant, including turns that began before the tenant's text was changed.
    turns: Mutex<Weak<TurnCounts>>,
    /// The usage that was written to the store so far.
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
            cpu: CpuDebt::new(),
            rates: Rates::new(&busy),
            busy,
            held: Held::default(),
            tokens: Tokens::new(),
            callers: Callers::new(),
            // Initially true, so that stored data is counted at once.
            was_asked: AtomicBool::new(true),
            turns: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// The usage that is not in the store yet.
    pub(super) fn unwritten(&self) -> Consumption {
        let used = Consumption {
            requests: self.rates.all_requests(),
            refused: self.rates.refused(),
            cpu_micros: u64::try_from(self.busy.read().as_micros()).unwrap_or(u64::MAX),
            tokens: self.tokens.all(),
        };
        used.since(&self.written())
    }

    /// Records usage that was written to the store.
    pub(super) fn note_written(&self, used: &Consumption) {
        self.written().add(used);
    }

    fn written(&self) -> MutexGuard<'_, Consumption> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counter for the CPU time of the tenant's extensions.
    #[must_use]
    pub fn busy(&self) -> BusyTime {
        self.busy.clone()
    }

    pub(super) fn quota(&self) -> TenantQuota {
        self.quota.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the quota. Debt stays and is paid back at the new rate.
    pub(super) fn set_quota(&self, quota: &TenantQuota) {
        let mut before = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        for bucket in [&self.requests, &self.card_reads] {
            bucket.rescale(before.requests_per_second, quota.requests_per_second);
        }
        self.cpu.rescale(before.cpu_ms_per_second, quota.cpu_ms_per_second);
        self.callers.set_quota(&before.caller, &quota.caller);
        *before = quota.clone();
        // Loading a tenant takes CPU time too. An operator may have caused the load, so the time is not charged to
        // callers.
        self.cpu.exempt(self.busy.read());
    }

    /// Charges the CPU time since the last charge.
    ///
    /// # Errors
    /// The time until the debt is paid back, if there is one.
    pub(super) fn charge_cpu(&self, limit: u64, processes: usize) -> Result<(), Duration> {
        self.cpu.charge(self.busy.read(), limit, processes)
    }

    /// Charges the remaining CPU time under the current limit.
    pub(super) fn settle_cpu(&self, processes: usize) {
        if let Some(limit) = self.quota().cpu_ms_per_second {
            let _ = self.charge_cpu(limit, processes);
        }
    }

    pub(super) fn note_asked(&self) {
        // The read avoids most writes: the flag is usually set already, and a write invalidates the cache line on other
        // cores.
        if !self.was_asked.load(Ordering::Relaxed) {
            self.was_asked.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn take_asked(&self) -> bool {
        self.was_asked.swap(false, Ordering::Relaxed)
    }

    /// True if the ledger is in its initial state. That becomes true for every unused tenant, because buckets refill.
    pub(super) fn is_as_new(&self, processes: usize) -> bool {
        self.settle_cpu(processes);
        let buckets = [&self.requests, &self.card_reads];
        let runs = self.turns.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0;
        let is_written = self.unwritten() == Consumption::default();
        let is_settled = is_written && self.tokens.count().read() == 0;
        let is_paid = buckets.into_iter().all(Bucket::is_full) && self.cpu.is_paid();
        !runs && is_paid && is_settled && self.held.is_due() && self.callers.are_as_new(&self.quota().caller, processes)
    }

    /// Drops the ledgers of callers that are in their initial state.
    pub(super) fn drop_unused_callers(&self, processes: usize) {
        self.callers.drop_unused(&self.quota().caller, processes);
    }

    /// The running turns, or `new` if there are none.
    pub(crate) fn turns(&self, new: impl FnOnce() -> TurnCounts) -> Arc<TurnCounts> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.upgrade().unwrap_or_else(|| {
            let new = Arc::new(new());
            *turns = Arc::downgrade(&new);
            new
        })
    }

    /// Computes the rates of the last second. Called about once a second.
    pub(super) fn sample(&self) {
        self.rates.sample(&self.busy);
    }
}
