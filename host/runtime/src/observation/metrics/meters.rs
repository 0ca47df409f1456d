//! The counters behind the metrics. They are read one by one, so a reader may see a call in one counter and not yet
//! in another.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::totals::Totals;
use super::{BusyTime, CallOutcome, ExtensionMetrics, HookMetrics, LastFailure};
use crate::hook::Hook;

/// Upper bounds of the latency buckets in microseconds.
const BOUNDS: [u64; 11] = [5, 10, 25, 50, 100, 250, 1_000, 10_000, 50_000, 250_000, 1_000_000];

/// The counters of one URI.
#[derive(Default)]
pub(crate) struct Meters {
    hooks: [HookMeters; Hook::ALL.len()],
    last_failure: Mutex<Option<LastFailure>>,
    memory_peak: AtomicUsize,
    host_calls: AtomicU64,
    instructions: AtomicU64,
    quarantined_turns: AtomicU64,
    busy_turns: AtomicU64,
    kept_turns: AtomicU64,
    waits: AtomicU64,
    waited_nanos: AtomicU64,
    log_lines: AtomicU64,
    log_lines_dropped: AtomicU64,
    totals: Arc<Totals>,
    of_tenant: BusyTime,
}

#[derive(Default)]
struct HookMeters {
    outcomes: [AtomicU64; CallOutcome::ALL.len()],
    /// Calls per latency bucket, not cumulative. The last bucket has no upper bound.
    latencies: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
    busy_nanos: AtomicU64,
    longest_nanos: AtomicU64,
}

impl Meters {
    /// Creates counters whose calls also update these totals.
    pub(super) fn counting_in(totals: &Arc<Totals>, of_tenant: &BusyTime) -> Self {
        Self { totals: Arc::clone(totals), of_tenant: of_tenant.clone(), ..Self::default() }
    }

    /// Counts a call.
    pub(super) fn call_ended(&self, hook: Hook, outcome: CallOutcome, took: Duration, busy: Duration) {
        let Some(meters) = self.hooks.get(hook as usize) else { return };
        add_at(&meters.outcomes, outcome as usize);
        add_at(&meters.latencies, BOUNDS.partition_point(|bound| Duration::from_micros(*bound) < took));
        self.totals.call_ended(hook, outcome, busy);
        add_time(&meters.nanos, took);
        add_time(&meters.busy_nanos, busy);
        self.of_tenant.add(busy);
        let took = nanos(took);
        // Read first: a new maximum is rare, and writing would move the cache line between cores.
        if meters.longest_nanos.load(Ordering::Relaxed) < took {
            meters.longest_nanos.fetch_max(took, Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self, failure: LastFailure) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// Updates the memory peak.
    pub(crate) fn has_memory(&self, bytes: usize) {
        if self.memory_peak.load(Ordering::Relaxed) < bytes {
            self.memory_peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_instructions(&self, instructions: u64) {
        self.instructions.fetch_add(instructions, Ordering::Relaxed);
    }

    pub(crate) fn add_host_calls(&self, calls: u32) {
        self.host_calls.fetch_add(u64::from(calls), Ordering::Relaxed);
    }

    /// Counts a turn that was not admitted because of a quarantine.
    pub(crate) fn add_quarantined_turn(&self) {
        self.quarantined_turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a turn that was not admitted because of too many concurrent turns.
    pub(crate) fn add_busy_turn(&self) {
        self.busy_turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a turn with a reused instance.
    pub(crate) fn add_kept_turn(&self) {
        self.kept_turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a wait for a slot, whether it succeeded or not.
    pub(crate) fn add_wait(&self, waited: Duration) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        add_time(&self.waited_nanos, waited);
    }

    pub(crate) fn add_log_line(&self) {
        self.log_lines.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_dropped_log_line(&self) {
        self.log_lines_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Thread time of the calls of all hooks.
    pub(crate) fn busy(&self) -> Duration {
        self.hooks.iter().map(|meters| time(&meters.busy_nanos)).sum()
    }

    /// Reads the counters of the hooks in `exported` that turns call.
    pub(crate) fn read(&self, exported: &[Hook]) -> ExtensionMetrics {
        // These three are called outside of turns, at load and for the card, which is not counted.
        let of_load = |hook: &Hook| matches!(hook, Hook::Descriptor | Hook::Card | Hook::LiveCard);
        let of_turns = exported.iter().filter(|hook| !of_load(hook));
        let read = |hook: &Hook| self.hooks.get(*hook as usize).map(|meters| meters.read(*hook));
        ExtensionMetrics {
            hooks: of_turns.filter_map(read).collect(),
            last_failure: self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            memory_peak: self.memory_peak.load(Ordering::Relaxed),
            host_calls: self.host_calls.load(Ordering::Relaxed),
            instructions: self.instructions.load(Ordering::Relaxed),
            quarantined_turns: self.quarantined_turns.load(Ordering::Relaxed),
            busy_turns: self.busy_turns.load(Ordering::Relaxed),
            kept_turns: self.kept_turns.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            waited: time(&self.waited_nanos),
            log_lines: self.log_lines.load(Ordering::Relaxed),
            log_lines_dropped: self.log_lines_dropped.load(Ordering::Relaxed),
        }
    }
}

impl HookMeters {
    fn read(&self, hook: Hook) -> HookMetrics {
        let counts = self.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
        let latencies = self.latencies.iter().map(|count| count.load(Ordering::Relaxed));
        let sums: Vec<u64> = latencies
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            })
            .collect();
        HookMetrics {
            hook,
            outcomes: CallOutcome::ALL.into_iter().zip(counts).collect(),
            calls: sums.last().copied().unwrap_or_default(),
            within: BOUNDS.map(Duration::from_micros).into_iter().zip(sums).collect(),
            time: time(&self.nanos),
            busy: time(&self.busy_nanos),
            longest: time(&self.longest_nanos),
        }
    }
}

pub(super) fn add_at(counts: &[AtomicU64], place: usize) {
    if let Some(count) = counts.get(place) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn add_time(sum: &AtomicU64, time: Duration) {
    sum.fetch_add(nanos(time), Ordering::Relaxed);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn time(nanos: &AtomicU64) -> Duration {
    Duration::from_nanos(nanos.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BOUNDS, Meters};
    use crate::hook::Hook;
    use crate::observation::metrics::CallOutcome;

    #[test]
    fn a_call_is_counted_by_outcome_and_in_every_latency_bound_that_it_met() {
        let meters = Meters::default();
        let busy = Duration::from_micros(3);
        for micros in [5, 6, 2_000_000] {
            meters.call_ended(Hook::State, CallOutcome::Trap, Duration::from_micros(micros), busy);
        }
        let read = meters.read(&[Hook::Descriptor, Hook::State]);
        let [state] = read.hooks.as_slice() else { unreachable!("{read:?}") };
        assert_eq!((state.calls, state.count(CallOutcome::Trap), state.failures()), (3, 3, 3));
        let within: Vec<u64> = state.within.iter().map(|(_, calls)| *calls).collect();
        assert_eq!((within.len(), within[0]), (BOUNDS.len(), 1));
        assert!(within[1..].iter().all(|calls| *calls == 2), "{within:?}");
        assert_eq!((state.time, state.busy), (Duration::from_micros(2_000_011), busy * 3));
        assert_eq!(state.longest, Duration::from_secs(2));
    }

    #[test]
    fn every_outcome_and_hook_has_a_place_of_its_own() {
        for (place, outcome) in CallOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
        for (place, hook) in Hook::ALL.into_iter().enumerate() {
            assert_eq!(hook as usize, place);
        }
    }
}
