//! Rates and percentiles of the last minute. They come from the counters that `/metrics` shows too.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annex_operations::counters::Counters;
use annex_telemetry::Distribution;
use tokio::time::Instant;

use crate::access_log::RequestNumbers;

/// The time over which rates and percentiles are computed.
const SPAN: Duration = Duration::from_secs(60);
/// The minimum time between two readings that are kept, so that at most 61 are kept.
const STEP: Duration = Duration::from_secs(1);
/// The percentiles of the page, per mille.
const PERCENTILES: [(&str, u64); 3] = [("p50", 500), ("p95", 950), ("p99", 990)];
const NONE: &str = "–";

/// The readings of the last minute. A request for the page adds one.
#[derive(Default)]
pub(super) struct History(Mutex<VecDeque<Figures>>);

/// One reading of the counters.
#[derive(Clone)]
pub(super) struct Figures {
    at: Instant,
    turns: Distribution,
    requests: u64,
    refusals: u64,
}

/// The figures of the page.
pub(super) struct RecentFigures {
    pub(super) turns_per_second: String,
    pub(super) requests_per_second: String,
    pub(super) refusals_per_second: String,
    /// A percentile of the duration of turns, and its value.
    pub(super) percentiles: Vec<(&'static str, String)>,
    /// The number of turns since the start of the server.
    pub(super) turns: u64,
    pub(super) refusals: u64,
}

impl Figures {
    pub(super) fn read(counters: &Counters, numbers: &RequestNumbers) -> Self {
        let none = Distribution { within: Vec::new(), count: 0, sum: Duration::ZERO };
        Self {
            at: Instant::now(),
            turns: counters.turns().map(|(_, turns)| turns).reduce(sum).unwrap_or(none),
            requests: numbers.times().map(|(_, _, time)| time.count).sum(),
            refusals: numbers.refusals().map(|(_, count)| count).sum(),
        }
    }
}

impl History {
    /// Adds a reading, and compares it with the oldest reading of the last minute.
    pub(super) fn add(&self, now: Figures) -> RecentFigures {
        let mut readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readings.retain(|reading| now.at.saturating_duration_since(reading.at) <= SPAN);
        let recent = RecentFigures::between(readings.front(), &now);
        let is_due = |last: &Figures| now.at.saturating_duration_since(last.at) >= STEP;
        if readings.back().is_none_or(is_due) {
            readings.push_back(now);
        }
        recent
    }
}

impl RecentFigures {
    fn between(before: Option<&Figures>, now: &Figures) -> Self {
        let before = before.filter(|before| now.at.saturating_duration_since(before.at) >= STEP);
        let rate = |count: fn(&Figures) -> u64| {
            before.map_or_else(
                || NONE.to_owned(),
                |before| {
                    let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
                    format!("{:.1}", count(now).saturating_sub(count(before)) as f64 / seconds)
                },
            )
        };
        let turns = before.map_or_else(|| now.turns.clone(), |before| difference(&now.turns, &before.turns));
        Self {
            turns_per_second: rate(|figures| figures.turns.count),
            requests_per_second: rate(|figures| figures.requests),
            refusals_per_second: rate(|figures| figures.refusals),
            percentiles: PERCENTILES.map(|(name, share)| (name, percentile(&turns, share))).into(),
            turns: now.turns.count,
            refusals: now.refusals,
        }
    }
}

fn sum(mut all: Distribution, one: Distribution) -> Distribution {
    for ((_, total), (_, count)) in all.within.iter_mut().zip(one.within) {
        *total += count;
    }
    all.count += one.count;
    all.sum += one.sum;
    all
}

fn difference(now: &Distribution, before: &Distribution) -> Distribution {
    let pairs = now.within.iter().zip(&before.within);
    Distribution {
        within: pairs.map(|((bound, now), (_, before))| (*bound, now.saturating_sub(*before))).collect(),
        count: now.count.saturating_sub(before.count),
        sum: now.sum.saturating_sub(before.sum),
    }
}

/// The bucket of a histogram in which the percentile lies, such as `≤ 5 ms`.
fn percentile(turns: &Distribution, per_mille: u64) -> String {
    if turns.count == 0 {
        return NONE.to_owned();
    }
    let rank = turns.count.saturating_mul(per_mille).div_ceil(1_000);
    match turns.within.iter().find(|(_, within)| *within >= rank) {
        Some((bound, _)) => format!("≤ {}", shown(*bound)),
        None => turns.within.last().map_or_else(|| NONE.to_owned(), |(bound, _)| format!("> {}", shown(*bound))),
    }
}

fn shown(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{} s", time.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use annex_operations::counters::{Counters, TurnEnd};

    use super::{Figures, History, RecentFigures};
    use crate::access_log::RequestNumbers;

    fn add(history: &History, counters: &Counters) -> RecentFigures {
        history.add(Figures::read(counters, &RequestNumbers::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn rates_and_percentiles_are_those_of_the_last_minute() {
        let (history, counters) = (History::default(), Counters::default());
        counters.turn(TurnEnd::Completed, Duration::from_secs(3_600));
        let first = add(&history, &counters);
        assert_eq!(first.turns_per_second, "–");
        tokio::time::advance(Duration::from_secs(10)).await;
        for _ in 0..20 {
            counters.turn(TurnEnd::Completed, Duration::from_micros(10));
        }
        let second = add(&history, &counters);
        assert_eq!((second.turns_per_second.as_str(), second.turns), ("2.0", 21));
        let (_, slowest) = second.percentiles.last().expect("a percentile");
        assert!(slowest.starts_with("≤ "), "the slow turn was before this minute: {slowest}");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(add(&history, &counters).turns_per_second, "–", "a page that nobody looked at has no rate");
    }

    #[tokio::test(start_paused = true)]
    async fn readings_are_bounded() {
        let (history, counters) = (History::default(), Counters::default());
        for _ in 0..1_000 {
            add(&history, &counters);
            tokio::time::advance(Duration::from_millis(300)).await;
        }
        let kept = history.0.lock().expect("the readings").len();
        assert!((30..=61).contains(&kept), "{kept}");
    }
}
