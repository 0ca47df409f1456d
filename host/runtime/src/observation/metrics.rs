//! The costs and outcomes of the calls of extensions, counted per URI.
//!
//! The numbers of a URI live as long as any version of it is loaded: they go on when a version is replaced, and go with
//! the last one. A call adds to a few atomics; it takes no lock and no memory.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use annex_protocol::ExtensionUri;

use crate::confinement::limits::LimitReached;
use crate::error::Fault;
use crate::hook::Hook;

mod meters;
mod totals;
pub(crate) mod watch;

pub(crate) use meters::Meters;
pub use totals::HookTotals;
use totals::Totals;

/// The outcome of a call of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It did its work.
    Ok,
    /// It refused the request, which is the client's fault.
    Refused,
    /// It trapped.
    Trap,
    /// It said itself that it failed.
    Failed,
    /// It returned what it may not.
    InvalidResult,
    /// [`LimitReached::Cpu`]
    CpuLimit,
    /// [`LimitReached::TurnCpu`]
    TurnCpuLimit,
    /// [`LimitReached::Wall`]
    WallLimit,
    /// [`LimitReached::TurnWall`]
    TurnWallLimit,
    /// [`LimitReached::Memory`]
    MemoryLimit,
    /// [`LimitReached::TableElements`]
    TableLimit,
    /// [`LimitReached::HostCalls`]
    HostCallLimit,
    /// [`LimitReached::Output`]
    OutputLimit,
    /// The event is larger than what it is handed.
    InputLimit,
    /// No instance became free in time.
    Overloaded,
    /// The request was given up while the call ran.
    Abandoned,
}

impl CallOutcome {
    /// Every outcome.
    pub const ALL: [Self; 16] = [
        Self::Ok,
        Self::Refused,
        Self::Trap,
        Self::Failed,
        Self::InvalidResult,
        Self::CpuLimit,
        Self::TurnCpuLimit,
        Self::WallLimit,
        Self::TurnWallLimit,
        Self::MemoryLimit,
        Self::TableLimit,
        Self::HostCallLimit,
        Self::OutputLimit,
        Self::InputLimit,
        Self::Overloaded,
        Self::Abandoned,
    ];

    /// In lower case with underscores, for labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Trap => "trap",
            Self::Failed => "failed",
            Self::InvalidResult => "invalid_result",
            Self::CpuLimit => "cpu_limit",
            Self::TurnCpuLimit => "turn_cpu_limit",
            Self::WallLimit => "wall_limit",
            Self::TurnWallLimit => "turn_wall_limit",
            Self::MemoryLimit => "memory_limit",
            Self::TableLimit => "table_limit",
            Self::HostCallLimit => "host_call_limit",
            Self::OutputLimit => "output_limit",
            Self::InputLimit => "input_limit",
            Self::Overloaded => "overloaded",
            Self::Abandoned => "abandoned",
        }
    }

    /// True when it is neither a success nor a client's doing.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Refused | Self::Abandoned)
    }
}

impl From<&Fault> for CallOutcome {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Trapped { .. } => Self::Trap,
            Fault::LimitReached { limit, .. } => Self::from(*limit),
            Fault::Failed { .. } => Self::Failed,
            Fault::BrokeContract { .. } => Self::InvalidResult,
            Fault::EventTooLarge { .. } => Self::InputLimit,
            Fault::Overloaded { .. } | Fault::Busy { .. } | Fault::Quarantined { .. } => Self::Overloaded,
        }
    }
}

impl From<LimitReached> for CallOutcome {
    fn from(limit: LimitReached) -> Self {
        match limit {
            LimitReached::Memory => Self::MemoryLimit,
            LimitReached::TableElements => Self::TableLimit,
            LimitReached::Cpu => Self::CpuLimit,
            LimitReached::TurnCpu => Self::TurnCpuLimit,
            LimitReached::Wall => Self::WallLimit,
            LimitReached::TurnWall => Self::TurnWallLimit,
            LimitReached::HostCalls => Self::HostCallLimit,
            LimitReached::Output => Self::OutputLimit,
        }
    }
}

/// The numbers of one URI at one moment, over all versions that it had without a gap. Calls for loading are not in them.
#[derive(Clone, Debug)]
pub struct ExtensionMetrics {
    /// The hooks of turns that the component has.
    pub hooks: Vec<HookMetrics>,
    /// The last call that failed.
    pub last_failure: Option<LastFailure>,
    /// The most linear memory that one instance has had, in bytes.
    pub memory_peak: usize,
    /// Calls of imports. They are counted when the turn is over.
    pub host_calls: u64,
    /// Instructions of its code, where they are counted.
    pub instructions: u64,
    /// Turns that were refused, or went on without it, because it was quarantined.
    pub quarantined_turns: u64,
    /// Turns that were refused, or went on without it, because it served as many as it may.
    pub busy_turns: u64,
    /// Turns that got a kept instance, which had served others.
    pub kept_turns: u64,
    /// Places and instances that a turn had to wait for.
    pub waits: u64,
    /// The time that turns waited for them.
    pub waited: Duration,
    /// Lines written to the log.
    pub log_lines: u64,
    /// Lines beyond the limit, which nobody sees.
    pub log_lines_dropped: u64,
}

/// The numbers of one hook.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    /// The hook.
    pub hook: Hook,
    /// The number of calls by outcome.
    pub outcomes: Vec<(CallOutcome, u64)>,
    /// The number of calls that took at most so long, in ascending order; each number has those before it in it.
    pub within: Vec<(Duration, u64)>,
    /// All calls that have ended.
    pub calls: u64,
    /// The time that they took, from asking for an instance to the guest's answer.
    pub time: Duration,
    /// The part of it in which they ran on a thread, the host's work for them included and waiting left out.
    pub busy: Duration,
    /// The time that the longest one took.
    pub longest: Duration,
}

impl HookMetrics {
    /// The number of calls that ended this way.
    #[must_use]
    pub fn count(&self, outcome: CallOutcome) -> u64 {
        self.outcomes.iter().filter(|(counted, _)| *counted == outcome).map(|(_, count)| count).sum()
    }

    /// The number of calls that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.outcomes.iter().filter(|(outcome, _)| outcome.is_failure()).map(|(_, count)| count).sum()
    }

    /// The mean time of a call; nothing without calls.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        (self.calls > 0).then(|| self.time.div_f64(self.calls as f64))
    }
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct LastFailure {
    /// The time at which it ended.
    pub at: SystemTime,
    /// The hook that was called.
    pub hook: Hook,
    /// Its outcome.
    pub outcome: CallOutcome,
    /// The reason in one line, without secrets and cut to the length of a log line.
    pub reason: String,
}

/// Finds the numbers of a URI again when another version of it is loaded.
#[derive(Default)]
pub(crate) struct Registry {
    kept: Mutex<HashMap<ExtensionUri, Weak<Meters>>>,
    /// The totals that every call adds to as well.
    totals: Arc<Totals>,
    /// The sum over all URIs, those that are no longer loaded among them.
    busy: BusyTime,
}

/// The time in which the calls of all extensions of a tenant ran on a thread. It never goes backwards, whatever is removed.
#[derive(Clone, Debug, Default)]
pub struct BusyTime(Arc<AtomicU64>);

impl BusyTime {
    /// The sum of all calls that have ended.
    #[must_use]
    pub fn read(&self) -> Duration {
        meters::time(&self.0)
    }

    /// Adds time that something else has taken for the tenant.
    pub fn add(&self, busy: Duration) {
        meters::add_time(&self.0, busy);
    }
}

impl Registry {
    /// Numbers of a tenant's own, whose calls count in the same totals, and their time in `busy` too.
    pub(crate) fn of_tenant(&self, busy: BusyTime) -> Self {
        Self { kept: Mutex::default(), totals: Arc::clone(&self.totals), busy }
    }

    pub(crate) fn totals(&self) -> Vec<HookTotals> {
        self.totals.read()
    }

    /// The numbers of the URI; new ones when no version of it is loaded.
    pub(crate) fn of(&self, uri: &ExtensionUri) -> Arc<Meters> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meters) = kept.get(uri).and_then(Weak::upgrade) {
            return meters;
        }
        // URIs that are no longer loaded are forgotten here, so that the map does not grow with each of them.
        kept.retain(|_, meters| meters.strong_count() > 0);
        let meters = Arc::new(Meters::counting_in(&self.totals, &self.busy));
        kept.insert(uri.clone(), Arc::downgrade(&meters));
        meters
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_protocol::ExtensionUri;

    use super::Registry;

    #[test]
    fn the_numbers_of_a_uri_live_as_long_as_a_version_of_it_and_leave_nothing() {
        let registry = Registry::default();
        let uri = ExtensionUri::from("urn:a");
        let first = registry.of(&uri);
        for number in 0..50 {
            assert!(Arc::ptr_eq(&first, &registry.of(&uri)), "a version is swapped");
            registry.of(&ExtensionUri::from(format!("urn:{number}")));
        }
        assert!(registry.kept.lock().expect("no panic").len() <= 2, "all others are gone but the last");
        let old = Arc::downgrade(&first);
        drop(first);
        registry.of(&uri);
        assert_eq!(old.strong_count(), 0);
    }
}
