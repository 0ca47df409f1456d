//! Totals of the calls of all extensions and tenants. They never decrease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::CallOutcome;
use super::meters::{add_at, add_time, time};
use crate::hook::Hook;

/// Calls of one hook, over all extensions.
#[derive(Clone, Debug)]
pub struct HookTotals {
    /// The hook that was called.
    pub hook: Hook,
    /// Number of calls per outcome.
    pub outcomes: Vec<(CallOutcome, u64)>,
    /// Thread time of the calls: guest and host code, without waiting.
    pub busy: Duration,
}

/// Totals by hook. A call updates only two of the counters, because the threads of all calls write here.
#[derive(Default)]
pub(super) struct Totals([OfHook; Hook::ALL.len()]);

#[derive(Default)]
struct OfHook {
    outcomes: [AtomicU64; CallOutcome::ALL.len()],
    busy_nanos: AtomicU64,
}

impl Totals {
    pub(super) fn call_ended(&self, hook: Hook, outcome: CallOutcome, busy: Duration) {
        let Some(totals) = self.0.get(hook as usize) else { return };
        add_at(&totals.outcomes, outcome as usize);
        add_time(&totals.busy_nanos, busy);
    }

    pub(super) fn read(&self) -> Vec<HookTotals> {
        let totals = Hook::ALL.into_iter().zip(&self.0).map(|(hook, totals)| {
            let counts = totals.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
            let outcomes = CallOutcome::ALL.into_iter().zip(counts).collect();
            HookTotals { hook, outcomes, busy: time(&totals.busy_nanos) }
        });
        totals.collect()
    }
}
