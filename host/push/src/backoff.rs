//! Delays between attempts.

use std::time::Duration;

/// Exponential backoff with full jitter: a random delay between zero and a bound that doubles with each attempt. The
/// jitter keeps events that failed together from being retried together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Bound of the delay after the first attempt.
    pub base: Duration,
    /// Upper limit of the bound. It also limits the delay that a receiver may ask for in `Retry-After`.
    pub max: Duration,
}

impl Default for Backoff {
    /// The delays with a bound that begins at 500 milliseconds and grows to at most 30 seconds.
    fn default() -> Self {
        Self { base: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// Delay after `failed` attempts (at least 1). `random` is between 0 and 1. `wanted` is the receiver's
    /// `Retry-After`.
    pub(crate) fn delay(&self, failed: u32, random: f64, wanted: Option<Duration>) -> Duration {
        let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
        let bound = self.base.saturating_mul(doubled).min(self.max);
        let jittered = bound.mul_f64(random.clamp(0.0, 1.0));
        // A receiver can lengthen the delay, not shorten it.
        wanted.map_or(jittered, |wanted| wanted.min(self.max).max(jittered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(10) };

    #[test]
    fn the_bound_doubles_up_to_the_maximum() {
        let bounds = [1, 2, 3, 4, 5, 60, u32::MAX].map(|failed| BACKOFF.delay(failed, 1.0, None).as_secs());
        assert_eq!(bounds, [1, 2, 4, 8, 10, 10, 10]);
    }

    #[test]
    fn the_jitter_covers_all_from_nothing_to_the_bound() {
        let delays = [0.0, 0.25, 0.5, 1.0].map(|random| BACKOFF.delay(3, random, None).as_secs());
        assert_eq!(delays, [0, 1, 2, 4]);
        for failed in 1..20 {
            assert!(BACKOFF.delay(failed, fastrand::f64(), None) <= BACKOFF.max);
        }
    }

    #[test]
    fn retry_after_is_obeyed_up_to_the_maximum() {
        let delay = |wanted| BACKOFF.delay(1, 0.5, Some(Duration::from_secs(wanted)));
        assert_eq!(delay(0), Duration::from_millis(500), "it cannot ask for less than the jitter");
        assert_eq!(delay(7), Duration::from_secs(7));
        assert_eq!(delay(86_400), Duration::from_secs(10));
        assert_eq!(delay(u64::MAX), Duration::from_secs(10));
    }
}
