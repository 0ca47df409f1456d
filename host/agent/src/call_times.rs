//! Durations of calls to models, agents and tools, by outcome.

use annex_telemetry::{Distribution, Histogram};

use crate::steps::StepKind;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The call was answered.
    Ok,
    /// The call failed or was refused.
    Failed,
    /// The call was broken off: its turn ended, or its answer exceeded a limit.
    BrokenOff,
}

impl CallEnd {
    /// All outcomes. The index of an outcome in this list is its number as an integer.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Failed, Self::BrokenOff];

    /// The name of the outcome in metric labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::BrokenOff => "broken_off",
        }
    }
}

/// The durations of the calls of all agents.
#[derive(Debug, Default)]
pub struct CallTimes([[Histogram; CallEnd::ALL.len()]; KINDS]);

const KINDS: usize = 3;

impl CallTimes {
    /// The histogram of calls of this kind with this outcome.
    pub(crate) fn of(&self, kind: StepKind, end: CallEnd) -> Option<&Histogram> {
        self.0.get(kind as usize)?.get(end as usize)
    }

    /// The durations of this kind's calls so far, by outcome.
    pub fn read(&self, kind: StepKind) -> impl Iterator<Item = (CallEnd, Distribution)> {
        CallEnd::ALL.into_iter().filter_map(move |end| Some((end, self.of(kind, end)?.read())))
    }
}
