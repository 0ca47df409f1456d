//! A token bucket that fills at a steady rate. Its state is a point in time: the earliest time at which the bucket is
//! full again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The capacity of a bucket: the amount that is refilled in one second.
const WINDOW: Duration = Duration::from_secs(1);

/// A token bucket without a lock. Its state is one number, which is updated by compare-and-exchange.
#[derive(Debug)]
pub(super) struct Bucket {
    began: Instant,
    /// The time at which the bucket is full again, in nanoseconds since `began`.
    paid_until: AtomicU64,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), paid_until: AtomicU64::new(0) }
    }

    /// Takes an amount from the bucket. `cost` is the time in which that amount is refilled. A full bucket always
    /// allows one request, even if its cost is higher than the capacity.
    ///
    /// # Errors
    /// The time until the bucket has the amount. Nothing is taken then.
    pub(super) fn take(&self, cost: Duration) -> Result<(), Duration> {
        let now = self.now();
        let cost = nanos(cost);
        let room = nanos(WINDOW).max(cost);
        let taken = |until: u64| {
            let until = until.max(now).saturating_add(cost);
            (until <= now.saturating_add(room)).then_some(until)
        };
        let update = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let beyond = |until: u64| until.max(now).saturating_add(cost).saturating_sub(now.saturating_add(room));
        update.map(drop).map_err(|until| Duration::from_nanos(beyond(until)))
    }

    /// Takes an amount that is refilled in `cost`, even if the bucket does not hold that much.
    ///
    /// # Errors
    /// The time until the debt is paid back, if there is one.
    pub(super) fn charge(&self, cost: Duration) -> Result<(), Duration> {
        let now = self.now();
        let cost = nanos(cost);
        let charged = |until: u64| until.max(now).saturating_add(cost);
        let before = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| Some(charged(until)));
        let until = charged(before.unwrap_or_else(|until| until));
        match until.saturating_sub(now.saturating_add(nanos(WINDOW))) {
            0 => Ok(()),
            beyond => Err(Duration::from_nanos(beyond)),
        }
    }

    /// Converts the state from the limit `before` to the limit `after`. Debt is then paid back at the new rate.
    pub(super) fn rescale(&self, before: Option<u64>, after: Option<u64>) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let now = self.now();
        let rescaled = |until: u64| {
            let owed = u128::from(until.saturating_sub(now)) * u128::from(before) / u128::from(after.max(1));
            Some(now.saturating_add(u64::try_from(owed).unwrap_or(u64::MAX)))
        };
        // The update function always returns a value, so this cannot fail.
        let _ = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rescaled);
    }

    /// True if the bucket is full.
    pub(super) fn is_full(&self) -> bool {
        self.paid_until.load(Ordering::Relaxed) <= self.now()
    }

    fn now(&self) -> u64 {
        nanos(self.began.elapsed())
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `time` times `factor`, divided by `limit`. A limit of zero counts as one.
pub(super) fn times(time: Duration, factor: usize, limit: u64) -> Duration {
    let product = time.as_nanos().saturating_mul(factor as u128) / u128::from(limit.max(1));
    Duration::from_nanos(u64::try_from(product).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::Bucket;

    #[test]
    fn a_full_bucket_gives_what_a_second_brings_and_says_when_there_is_more() {
        let bucket = Bucket::new();
        let cost = Duration::from_millis(200);
        let taken = (0..10).take_while(|_| bucket.take(cost).is_ok()).count();
        assert_eq!(taken, 5);
        let wait = bucket.take(cost).expect_err("it is empty");
        assert!(wait <= cost, "{wait:?}");
        sleep(wait);
        bucket.take(cost).expect("so long it took");
    }

    #[test]
    fn one_that_costs_more_than_a_second_brings_is_had_once_in_that_time() {
        let bucket = Bucket::new();
        let cost = Duration::from_secs(3);
        bucket.take(cost).expect("it is full");
        let wait = bucket.take(cost).expect_err("it is empty");
        assert!(wait > Duration::from_secs(2) && wait <= cost, "{wait:?}");
    }

    #[test]
    fn what_is_owed_under_one_limit_is_owed_under_the_next_at_its_pace() {
        let bucket = Bucket::new();
        assert!(bucket.is_full());
        bucket.charge(Duration::from_secs(100)).expect_err("more than there was");
        bucket.rescale(Some(10), Some(5));
        let wait = bucket.charge(Duration::ZERO).expect_err("twice as long");
        assert!(wait > Duration::from_secs(190) && wait <= Duration::from_secs(199), "{wait:?}");
        for unchanged in [(None, Some(1)), (Some(1), None), (Some(5), Some(5))] {
            bucket.rescale(unchanged.0, unchanged.1);
        }
        bucket.rescale(Some(5), Some(5_000));
        bucket.charge(Duration::ZERO).expect("within a second");
        assert!(!bucket.is_full());
        bucket.rescale(Some(1), Some(u64::MAX));
        assert!(bucket.is_full());
    }

    #[test]
    fn more_than_there_was_is_paid_back_before_there_is_any_again() {
        let bucket = Bucket::new();
        bucket.charge(Duration::from_millis(900)).expect("within a second");
        let wait = bucket.charge(Duration::from_millis(600)).expect_err("more than there was");
        assert!(wait > Duration::from_millis(400) && wait <= Duration::from_millis(500), "{wait:?}");
        sleep(wait);
        bucket.charge(Duration::ZERO).expect("paid back");
    }
}
