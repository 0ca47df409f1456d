//! Metrics of extensions, per URI.
//!
//! The metrics of a URI exist while any version of it is loaded: they continue when a version is replaced, and are
//! removed with the last one. A call updates a few atomics, without locks and allocations.

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

/// The outcome of a hook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The call succeeded.
    Ok,
    /// The extension refused the request, which is the client's fault.
    Refused,
    /// The guest trapped.
    Trap,
    /// The guest returned an error.
    Failed,
    /// The guest returned an invalid value.
    InvalidResult,
    /// The guest exceeded a limit: [`LimitReached::Cpu`].
    CpuLimit,
    /// The guest exceeded a limit: [`LimitReached::TurnCpu`].
    TurnCpuLimit,
    /// The guest exceeded a limit: [`LimitReached::Wall`].
    WallLimit,
    /// The guest exceeded a limit: [`LimitReached::TurnWall`].
    TurnWallLimit,
    /// The guest exceeded a limit: [`LimitReached::Memory`].
    MemoryLimit,
    /// The guest exceeded a limit: [`LimitReached::TableElements`].
    TableLimit,
    /// The guest exceeded a limit: [`LimitReached::HostCalls`].
    HostCallLimit,
    /// The guest exceeded a limit: [`LimitReached::Output`].
    OutputLimit,
    /// The event is larger than the extension's limit.
    InputLimit,
    /// No instance became free in time.
    Overloaded,
    /// The request was cancelled during the call.
    Abandoned,
}

impl CallOutcome {
    /// All outcomes.
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

    /// Name in metric labels, such as `cpu_limit`.
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

    /// True if the extension or the host failed.
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
            Fault::EventTooLarge { .. } | Fault::HoldsTooMuch { .. } => Self::InputLimit,
            Fault::Overloaded { .. } | Fault::Busy { .. } | Fault::Quarantined { .. } | Fault::Revoked { .. } => {
                Self::Overloaded
            }
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

/// Metrics of one URI at one moment, over all versions that followed each other without a gap. Calls during loading
/// are not counted.
#[derive(Clone, Debug)]
pub struct ExtensionMetrics {
    /// The hooks that the component exports and that turns call.
    pub hooks: Vec<HookMetrics>,
    /// The last failed call.
    pub last_failure: Option<LastFailure>,
    /// Largest linear memory of an instance, in bytes.
    pub memory_peak: usize,
    /// Number of calls of imports. The calls of a turn are added when the turn ends.
    pub host_calls: u64,
    /// Executed instructions, if they are counted.
    pub instructions: u64,
    /// Number of turns that were refused, or ran without the extension, because the extension was quarantined.
    pub quarantined_turns: u64,
    /// Number of turns that were refused, or ran without the extension, because the extension had too many concurrent
    /// turns.
    pub busy_turns: u64,
    /// Number of turns that got an instance of an earlier turn.
    pub kept_turns: u64,
    /// How often a turn had to wait for a slot.
    pub waits: u64,
    /// Total time that turns have waited for slots.
    pub waited: Duration,
    /// Number of log lines that were written.
    pub log_lines: u64,
    /// Number of log lines that were dropped because of the limit.
    pub log_lines_dropped: u64,
}

/// The calls of one hook of an extension.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    /// The hook that was called.
    pub hook: Hook,
    /// Number of calls per outcome.
    pub outcomes: Vec<(CallOutcome, u64)>,
    /// Cumulative latency counts: upper bound and number of calls up to it, in ascending order.
    pub within: Vec<(Duration, u64)>,
    /// Number of all calls that have ended.
    pub calls: u64,
    /// Total time of the calls. The time of a call begins when the turn requests an instance, and ends with the guest's
    /// answer.
    pub time: Duration,
    /// Thread time of the calls: guest and host code, without waiting.
    pub busy: Duration,
    /// Time of the longest call.
    pub longest: Duration,
}

impl HookMetrics {
    /// Number of calls with this outcome.
    #[must_use]
    pub fn count(&self, outcome: CallOutcome) -> u64 {
        self.outcomes.iter().filter(|(counted, _)| *counted == outcome).map(|(_, count)| count).sum()
    }

    /// Number of failed calls.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.outcomes.iter().filter(|(outcome, _)| outcome.is_failure()).map(|(_, count)| count).sum()
    }

    /// Time within which 99 % of the calls have ended: the bound of a bucket of [`within`](Self::within), or the longest
    /// time if that is less. `None` without calls.
    #[must_use]
    pub fn p99(&self) -> Option<Duration> {
        let needed = self.calls.saturating_mul(99).div_ceil(100);
        let bucket = self.within.iter().find(|(_, calls)| *calls >= needed);
        let bound = bucket.map_or(self.longest, |(bound, _)| self.longest.min(*bound));
        (self.calls > 0).then_some(bound)
    }

    /// Mean time of a call; `None` without calls.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        (self.calls > 0).then(|| self.time.div_f64(self.calls as f64))
    }
}

/// A failed call.
#[derive(Clone, Debug)]
pub struct LastFailure {
    /// End of the call.
    pub at: SystemTime,
    /// The called hook.
    pub hook: Hook,
    /// The kind of failure.
    pub outcome: CallOutcome,
    /// The reason in one line, without secrets, cut to the length of a log line.
    pub reason: String,
}

/// The metrics by URI. A new version of an extension continues the metrics of its URI.
#[derive(Default)]
pub(crate) struct Registry {
    kept: Mutex<HashMap<ExtensionUri, Weak<Meters>>>,
    /// Process-wide totals, which every call updates too.
    totals: Arc<Totals>,
    /// Thread time over all URIs, including removed ones.
    busy: BusyTime,
}

/// Thread time of all extension calls of a tenant. Never decreases.
#[derive(Clone, Debug, Default)]
pub struct BusyTime(Arc<AtomicU64>);

impl BusyTime {
    /// Total time of all calls that have ended.
    #[must_use]
    pub fn read(&self) -> Duration {
        meters::time(&self.0)
    }

    /// Adds time of other work for the tenant.
    pub fn add(&self, busy: Duration) {
        meters::add_time(&self.0, busy);
    }
}

impl Registry {
    /// Creates the metrics of a tenant. Its calls also update the totals of the process, and add their thread time to
    /// `busy`.
    pub(crate) fn of_tenant(&self, busy: BusyTime) -> Self {
        Self { kept: Mutex::default(), totals: Arc::clone(&self.totals), busy }
    }

    pub(crate) fn totals(&self) -> Vec<HookTotals> {
        self.totals.read()
    }

    /// The metrics of the URI. Creates them if no version of it is loaded.
    pub(crate) fn of(&self, uri: &ExtensionUri) -> Arc<Meters> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meters) = kept.get(uri).and_then(Weak::upgrade) {
            return meters;
        }
        // Removes URIs without loaded versions, so that the map does not grow.
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
    fn metrics_of_a_uri_exist_while_a_version_is_loaded() {
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
