//! The time that a request spends in each stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::request::Request;
use crate::timeline::{Part, Work};
use crate::traces::Span;

/// A stage of a request. If several stages are open at the same time, the stage that comes last in this list gets the
/// time. For example, while a hook reads keys of its extension, only [`Stage::Store`] gets the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The agent runs, in this process or remotely.
    Agent,
    /// A hook or method of an extension runs, or waits for an instance.
    Hooks,
    /// The request waits for the database.
    Store,
}

impl Stage {
    /// The kind of the stage in a timeline. `None` for hooks, which are added one by one with their verdicts.
    const fn work(self) -> Option<Work> {
        match self {
            Self::Agent => Some(Work::Agent),
            Self::Hooks => None,
            Self::Store => Some(Work::Store),
        }
    }
}

const STAGES: usize = 3;

/// The time of a request in each stage. Each moment counts for one stage only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// The time in [`Stage::Agent`].
    pub agent: Duration,
    /// The time in [`Stage::Hooks`].
    pub hooks: Duration,
    /// The time in [`Stage::Store`].
    pub store: Duration,
}

/// The clock of a request. Several tasks may work on one request, so a stage can be open several times at once.
pub(crate) struct Stages {
    began: Instant,
    /// The moment up to which all time is already assigned to stages, in nanoseconds since the beginning of the
    /// request.
    settled: AtomicU64,
    /// For each stage, the number of times that it is open.
    open: [AtomicU32; STAGES],
    nanos: [AtomicU64; STAGES],
}

impl Stages {
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, settled: AtomicU64::new(0), open: Default::default(), nanos: Default::default() }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Assigns the time up to `at` to an open stage. If this is called concurrently, each moment is still assigned
    /// once.
    fn settle(&self, at: Instant) {
        let at = u64::try_from(at.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let passed = at.saturating_sub(self.settled.fetch_max(at, Ordering::Relaxed));
        let stage = self.open.iter().rposition(|open| open.load(Ordering::Relaxed) > 0);
        if let Some(nanos) = stage.and_then(|stage| self.nanos.get(stage)) {
            nanos.fetch_add(passed, Ordering::Relaxed);
        }
    }

    fn enter(&self, stage: Stage, at: Instant) {
        self.settle(at);
        if let Some(open) = self.open.get(stage as usize) {
            open.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn leave(&self, stage: Stage, at: Instant) {
        self.settle(at);
        if let Some(open) = self.open.get(stage as usize) {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn spent(&self, at: Instant) -> StageTimes {
        self.settle(at);
        let of = |stage: Stage| {
            let nanos = self.nanos.get(stage as usize).map_or(0, |nanos| nanos.load(Ordering::Relaxed));
            Duration::from_nanos(nanos)
        };
        StageTimes { agent: of(Stage::Agent), hooks: of(Stage::Hooks), store: of(Stage::Store) }
    }
}

/// An open stage. Dropping it leaves the stage.
#[must_use = "the stage ends when this is dropped"]
pub struct StageGuard {
    stage: Stage,
    /// The request whose stage is open, and the beginning of the stage. `None` if the request is not measured, or if the
    /// stage was left.
    open: Option<(Arc<Request>, Instant)>,
    /// The work in the stage in one word. May be empty.
    what: &'static str,
    /// The span of the stage, which ends with the guard.
    _span: Span,
}

impl StageGuard {
    pub(crate) fn new(request: Option<Arc<Request>>, stage: Stage, at: Instant) -> Self {
        if let Some(request) = &request {
            request.stages().enter(stage, at);
        }
        Self { stage, open: request.map(|request| (request, at)), what: "", _span: Span::off() }
    }

    pub(crate) fn nowhere(stage: Stage) -> Self {
        Self { stage, open: None, what: "", _span: Span::off() }
    }

    pub(crate) fn with_span(mut self, span: Span) -> Self {
        self._span = span;
        self
    }

    /// Names the work in the stage, in one word.
    pub(crate) fn with_name(mut self, what: &'static str) -> Self {
        self.what = what;
        self
    }

    /// Leaves the stage. `at` is the current time, which the caller already knows.
    pub fn leave_at(mut self, at: Instant) {
        self.leave(|| at);
    }

    fn leave(&mut self, at: impl FnOnce() -> Instant) {
        let Some((request, began)) = self.open.take() else { return };
        let at = at();
        request.stages().leave(self.stage, at);
        if let (Some(timeline), Some(work)) = (request.timeline(), self.stage.work()) {
            timeline.add("", &Part::new(work, self.what, began, at.saturating_duration_since(began)));
        }
    }
}

impl Drop for StageGuard {
    fn drop(&mut self) {
        self.leave(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Stage, StageTimes, Stages};

    #[test]
    fn the_time_of_a_stage_within_another_is_the_inner_ones_alone() {
        let began = Instant::now();
        let after = |millis| began + Duration::from_millis(millis);
        let stages = Stages::new(began);
        stages.enter(Stage::Agent, after(10));
        stages.enter(Stage::Hooks, after(20));
        stages.enter(Stage::Store, after(25));
        stages.leave(Stage::Store, after(27));
        stages.leave(Stage::Hooks, after(30));
        let millis = Duration::from_millis;
        let spent = stages.spent(after(40));
        assert_eq!(spent, StageTimes { agent: millis(20), hooks: millis(8), store: millis(2) });
    }

    #[test]
    fn stages_of_two_tasks_at_once_spend_each_moment_once() {
        let began = Instant::now();
        let after = |millis| began + Duration::from_millis(millis);
        let stages = Stages::new(began);
        stages.enter(Stage::Store, after(0));
        stages.enter(Stage::Store, after(1));
        stages.leave(Stage::Store, after(3));
        stages.leave(Stage::Store, after(5));
        // A clock that another core has read earlier.
        stages.enter(Stage::Hooks, after(4));
        stages.leave(Stage::Hooks, after(8));
        let spent = stages.spent(after(9));
        assert_eq!((spent.store, spent.hooks), (Duration::from_millis(5), Duration::from_millis(3)));
    }
}
