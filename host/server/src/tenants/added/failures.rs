//! The tenants whose last loads failed. The pause before the next load grows with each failure. Without the pause, a
//! tenant whose costly load fails would keep the server busy all the time.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first failure. The pause after each further failure is twice as long, up to [`LONGEST_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(5);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The failures, by tenant. The entry of a tenant is removed when twice the longest pause has passed since its last
/// failure.
#[derive(Default)]
pub(super) struct Failures(HashMap<String, FailureCount>);

struct FailureCount {
    /// The number of failures since the last success.
    times: u32,
    last: Instant,
}

impl Failures {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Records one more failure and returns the pause after it.
    pub(super) fn add(&mut self, name: &str) -> Duration {
        let failing = self.0.entry(name.to_owned()).or_insert(FailureCount { times: 0, last: Instant::now() });
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failing.times)).min(LONGEST_PAUSE);
        *failing = FailureCount { times: failing.times.saturating_add(1), last: Instant::now() };
        pause
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn forget_old(&mut self) {
        self.0.retain(|_, failing| failing.last.elapsed() < LONGEST_PAUSE * 2);
    }
}
