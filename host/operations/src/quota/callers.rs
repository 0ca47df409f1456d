//! The callers of a tenant: the usage of each caller in this process, against the tenant's quota per caller.
//!
//! The number of callers with a ledger of their own is limited. While all ledgers are in use, all further callers share one
//! ledger. A ledger with usage that still counts is never dropped, so a caller cannot get rid of its usage by means of other
//! principals.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_runtime::BusyTime;
use annex_telemetry::with;

use super::bucket::{Bucket, times};
use super::cpu::CpuDebt;
use super::limits::CallerQuota;
use super::tokens::Tokens;

/// The maximum number of callers of a tenant that have a ledger of their own.
const MAX_CALLERS: usize = 10_000;
/// The name under which the tokens of all further callers are stored. No principal has a control character.
const OTHERS: &str = "\0others";

/// The callers of one tenant.
pub(super) struct Callers {
    of_principals: Mutex<HashMap<Arc<str>, Arc<CallerLedger>>>,
    /// The ledger of all callers for which there is no place.
    others: Arc<CallerLedger>,
    max: usize,
    /// The number of callers whose tokens were stored so far. It decides who is the next.
    settled: AtomicUsize,
}

/// The usage of one caller of a tenant in this process.
pub(crate) struct CallerLedger {
    requests: Bucket,
    cpu: CpuDebt,
    busy: BusyTime,
    pub(super) tokens: Tokens,
    /// True if the caller sent a request since its tokens were stored and read.
    was_asked: AtomicBool,
}

/// A limit that a caller has exceeded.
pub(super) struct Over {
    /// The name of the limit: its key below `quota`.
    pub(super) quota: &'static str,
    pub(super) limit: u64,
    /// The time after which the caller may try again.
    pub(super) wait: Duration,
}

impl Callers {
    pub(super) fn new() -> Self {
        Self::with_places(MAX_CALLERS)
    }

    fn with_places(max: usize) -> Self {
        let others = Arc::new(CallerLedger::new(OTHERS));
        Self { of_principals: Mutex::default(), others, max, settled: AtomicUsize::new(0) }
    }

    /// The ledger of a caller. Creates a missing one if there is a place. Otherwise returns the ledger that all further
    /// callers share.
    pub(super) fn of(&self, principal: &str) -> Arc<CallerLedger> {
        let mut callers = self.lock();
        if let Some(caller) = callers.get(principal) {
            return Arc::clone(caller);
        }
        if callers.len() >= self.max {
            return Arc::clone(&self.others);
        }
        let caller = Arc::new(CallerLedger::new(principal));
        callers.insert(principal.into(), Arc::clone(&caller));
        caller
    }

    /// At most `most` callers whose tokens must be stored or read again. If there are more, their turn comes with the next
    /// calls.
    pub(super) fn to_settle(&self, most: usize) -> Vec<Arc<CallerLedger>> {
        let is_due = |caller: &&Arc<CallerLedger>| caller.is_to_settle();
        let mut due: Vec<_> = self.all(&self.lock()).filter(is_due).cloned().collect();
        if due.len() > most {
            let first = self.settled.fetch_add(most, Ordering::Relaxed) % due.len();
            due.rotate_left(first);
            due.truncate(most);
        }
        for caller in &due {
            caller.was_asked.store(false, Ordering::Relaxed);
        }
        due
    }

    /// Replaces the limits. Debt stays and is paid back at the new rate.
    pub(super) fn set_quota(&self, before: &CallerQuota, after: &CallerQuota) {
        let mut callers = self.lock();
        for caller in self.all(&callers) {
            caller.requests.rescale(before.requests_per_second, after.requests_per_second);
            caller.cpu.rescale(before.cpu_ms_per_second, after.cpu_ms_per_second);
        }
        if after.is_empty() {
            callers.clear();
        }
    }

    /// Drops the ledgers without usage that still counts, unless a request or a turn uses them.
    pub(super) fn drop_unused(&self, quota: &CallerQuota, processes: usize) {
        self.lock().retain(|_, caller| Arc::strong_count(caller) > 1 || !caller.is_as_new(quota, processes));
    }

    /// True if no caller has usage that still counts.
    pub(super) fn are_as_new(&self, quota: &CallerQuota, processes: usize) -> bool {
        self.all(&self.lock()).all(|caller| caller.is_as_new(quota, processes))
    }

    fn all<'a>(
        &'a self,
        callers: &'a HashMap<Arc<str>, Arc<CallerLedger>>,
    ) -> impl Iterator<Item = &'a Arc<CallerLedger>> {
        callers.values().chain([&self.others])
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<CallerLedger>>> {
        self.of_principals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerLedger {
    fn new(principal: &str) -> Self {
        Self {
            requests: Bucket::new(),
            cpu: CpuDebt::new(),
            busy: BusyTime::default(),
            tokens: Tokens::of_caller(principal),
            was_asked: AtomicBool::new(false),
        }
    }

    /// Counts a request of the caller.
    ///
    /// # Errors
    /// The limit that the caller has exceeded.
    pub(super) fn admit(&self, quota: &CallerQuota, processes: usize) -> Result<(), Over> {
        if !self.was_asked.load(Ordering::Relaxed) {
            self.was_asked.store(true, Ordering::Relaxed);
        }
        if let Some(limit) = quota.requests_per_second {
            let over = |wait| Over { quota: CallerQuota::REQUESTS, limit, wait };
            self.requests.take(times(Duration::from_secs(1), processes, limit)).map_err(over)?;
        }
        if let Some(limit) = quota.cpu_ms_per_second {
            let over = |wait| Over { quota: CallerQuota::CPU, limit, wait };
            self.cpu.charge(self.busy.read(), limit, processes).map_err(over)?;
        }
        Ok(())
    }

    /// Makes the extensions that run for the current request add their CPU time to this ledger.
    pub(crate) fn charge_request(self: &Arc<Self>) {
        with(|request| {
            request.charged.get_or_init(|| {
                let caller = Arc::clone(self);
                Arc::new(move |busy: Duration| caller.add_busy(busy))
            });
        });
    }

    /// Adds CPU time of extensions or of the agent.
    pub(super) fn add_busy(&self, busy: Duration) {
        self.busy.add(busy);
    }

    fn is_to_settle(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed) || self.tokens.count().read() > 0
    }

    /// True if the ledger has no usage that still counts.
    fn is_as_new(&self, quota: &CallerQuota, processes: usize) -> bool {
        if let Some(limit) = quota.cpu_ms_per_second {
            let _ = self.cpu.charge(self.busy.read(), limit, processes);
        }
        let has_tokens = quota.tokens_per_day.is_some() && self.tokens.used() > 0;
        self.requests.is_full() && self.cpu.is_paid() && !has_tokens
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{CallerQuota, Callers};

    const TWO: CallerQuota =
        CallerQuota { requests_per_second: Some(2), cpu_ms_per_second: Some(2), tokens_per_day: Some(10) };

    #[test]
    fn callers_beyond_the_places_share_one_ledger_and_push_nobody_out() {
        let callers = Callers::with_places(2);
        let ada = callers.of("ada");
        ada.add_busy(Duration::from_secs(100));
        assert!(!Arc::ptr_eq(&ada, &callers.of("")), "anonymous callers have a place");
        let others = callers.of("p-0");
        for number in 1..1_000 {
            assert!(Arc::ptr_eq(&others, &callers.of(&format!("p-{number}"))));
        }
        assert!(others.admit(&TWO, 1).is_ok() && others.admit(&TWO, 1).is_ok() && others.admit(&TWO, 1).is_err());
        assert!(Arc::ptr_eq(&ada, &callers.of("ada")));
        drop(ada);
        callers.drop_unused(&TWO, 1);
        let over = callers.of("ada").admit(&TWO, 1).expect_err("the debt stays");
        assert_eq!((over.quota, over.limit), ("caller.cpu_ms_per_second", 2));
    }

    #[test]
    fn a_place_is_free_again_when_nothing_of_its_caller_counts_or_runs() {
        let callers = Callers::with_places(1);
        drop(callers.of("ada"));
        callers.drop_unused(&TWO, 1);
        let bob = callers.of("bob");
        callers.drop_unused(&TWO, 1);
        assert!(Arc::ptr_eq(&bob, &callers.of("bob")), "a turn of bob runs");
        bob.tokens.count().add(1);
        drop(bob);
        callers.drop_unused(&TWO, 1);
        assert_eq!(callers.of("bob").tokens.used(), 1, "tokens count until midnight");
        assert!(!callers.are_as_new(&TWO, 1));
        callers.set_quota(&TWO, &CallerQuota::default());
        assert_eq!(callers.of("bob").tokens.used(), 0, "without limits nothing is counted");
    }

    #[test]
    fn the_tokens_of_all_callers_are_stored_in_turn() {
        let callers = Callers::with_places(10);
        for number in 0..10 {
            callers.of(&format!("p-{number}")).tokens.count().add(1);
        }
        let mut seen = 0;
        while seen < 10 {
            let due = callers.to_settle(3);
            assert!((1..=3).contains(&due.len()));
            seen += due.iter().filter(|caller| caller.tokens.count().take() > 0).count();
        }
        assert!(callers.to_settle(3).is_empty());
    }
}
