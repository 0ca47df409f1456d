//! A histogram of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in milliseconds. They range from requests that wait for nothing to turns of a
/// minute.
const BOUNDS: [u64; 14] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/// Counts durations in buckets. Adding a duration takes no lock and allocates nothing.
#[derive(Debug, Default)]
pub struct Histogram {
    /// The number of durations in each bucket, not cumulative. The last bucket has no upper bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// The state of a histogram at one moment.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// For each bound, in ascending order, the number of durations that are not longer than the bound.
    pub within: Vec<(Duration, u64)>,
    /// The number of all durations.
    pub count: u64,
    /// The sum of all durations.
    pub sum: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn add(&self, took: Duration) {
        let place = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < took);
        if let Some(count) = self.counts.get(place) {
            // Relaxed: no other memory depends on the numbers.
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the distribution of all durations so far.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let mut count = 0;
        let mut counts = self.counts.iter().map(|counted| {
            count += counted.load(Ordering::Relaxed);
            count
        });
        let within = BOUNDS.into_iter().map(Duration::from_millis).zip(&mut counts).collect();
        // The last count includes durations above all bounds.
        let count = counts.last().unwrap_or_default();
        Distribution { within, count, sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BOUNDS, Histogram};

    #[test]
    fn a_duration_counts_in_its_bucket_and_in_all_larger_ones() {
        let histogram = Histogram::default();
        for millis in [1, 2, 700, 90_000] {
            histogram.add(Duration::from_millis(millis));
        }
        let read = histogram.read();
        let up_to = |millis| {
            let bound = Duration::from_millis(millis);
            read.within.iter().find(|(other, _)| *other == bound).map(|(_, count)| *count)
        };
        assert_eq!((up_to(1), up_to(5), up_to(500), up_to(1_000)), (Some(1), Some(2), Some(2), Some(3)));
        assert_eq!((read.within.len(), read.within.last().map(|(_, count)| *count)), (BOUNDS.len(), Some(3)));
        assert_eq!((read.count, read.sum), (4, Duration::from_millis(90_703)));
    }
}
