//! The time of the last write of usage, and how long usage is kept.

use std::time::{Duration, Instant};

/// The default number of hours in a report on usage.
pub const LATELY: u64 = 24;
/// The number of hours for which the usage of tenants is kept in the store.
pub const MOST_HOURS: u64 = 7 * 24;
/// The time between two writes. A process that is killed loses the usage since its last write.
const PAUSE: Duration = Duration::from_secs(5);

/// The progress of writing usage.
#[derive(Default)]
pub(super) struct Written {
    pub(super) at: Option<Instant>,
    /// The hour in which old hours were last deleted.
    pub(super) cleared: u64,
    /// True while writing fails. Only the first failure is logged.
    pub(super) is_failing: bool,
}

impl Written {
    pub(super) fn is_due(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= PAUSE)
    }
}
