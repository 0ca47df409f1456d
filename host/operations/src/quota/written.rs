//! When the use of tenants was written last, and for how long it is kept.

use std::time::{Duration, Instant};

/// The hours of which the use of one tenant is told unless somebody asks for others.
pub const LATELY: u64 = 24;
/// The hours that are kept.
pub const MOST_HOURS: u64 = 7 * 24;
/// The time between two writes. A process that is killed loses what was used since the last one.
const PAUSE: Duration = Duration::from_secs(5);

/// What was written.
#[derive(Default)]
pub(super) struct Written {
    pub(super) at: Option<Instant>,
    /// The hour in which hours were forgotten last.
    pub(super) cleared: u64,
    /// True while writing fails, which is logged once.
    pub(super) is_failing: bool,
}

impl Written {
    pub(super) fn is_due(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= PAUSE)
    }
}
