//! How long models, other agents and tools take, by how their calls end.

use annex_telemetry::{Distribution, Histogram};

use crate::steps::StepKind;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It was answered.
    Ok,
    /// It failed, or was refused.
    Failed,
    /// It was broken off: its turn ended, or there was more than is taken.
    BrokenOff,
}

impl CallEnd {
    /// All of them, each in the place of its number.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Failed, Self::BrokenOff];

    /// The name in labels.
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
    /// The histogram of calls of this kind that ended so.
    pub(crate) fn of(&self, kind: StepKind, end: CallEnd) -> Option<&Histogram> {
        self.0.get(kind as usize)?.get(end as usize)
    }

    /// The calls of this kind so far, by how they ended.
    pub fn read(&self, kind: StepKind) -> impl Iterator<Item = (CallEnd, Distribution)> {
        CallEnd::ALL.into_iter().filter_map(move |end| Some((end, self.of(kind, end)?.read())))
    }
}
