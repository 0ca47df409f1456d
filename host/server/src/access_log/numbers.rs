//! Metrics of all requests: durations by operation and outcome, and refusals by reason.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use annex_protocol::Method;
use annex_telemetry::traces::SpanContext;
use annex_telemetry::{Distribution, Histogram, Outcome};

use super::{
    AGENT_CARD, CONTENT_TYPE, EXTENSION_METHOD, FOREIGN_HOST, HEALTH, MALFORMED, PREFLIGHT, UNKNOWN, UNKNOWN_PATH,
    UNKNOWN_TENANT,
};

/// Operations that are not a [`Method`] of A2A. The last one stands for all unknown operations.
const OTHERS: [&str; 5] = [AGENT_CARD, PREFLIGHT, EXTENSION_METHOD, HEALTH, UNKNOWN];

fn operations() -> impl Iterator<Item = &'static str> + Clone {
    Method::ALL.into_iter().map(Method::name).chain(OTHERS)
}

/// The reasons for refusals. The last one stands for all unknown reasons.
const REASONS: [&str; 25] = [
    "quota",
    "credentials",
    "required_extension",
    "violation",
    "extension_error",
    "veto",
    "invalid_params",
    "invalid_request",
    "too_large",
    "late",
    "broken_body",
    CONTENT_TYPE,
    "version",
    "unknown_method",
    UNKNOWN_PATH,
    UNKNOWN_TENANT,
    "tenant_unavailable",
    "not_found",
    "unsupported",
    "overloaded",
    "starting",
    "draining",
    FOREIGN_HOST,
    MALFORMED,
    "other",
];

/// The metrics of a server's requests.
#[derive(Default)]
pub(crate) struct RequestNumbers {
    times: [[Histogram; Outcome::ALL.len()]; Method::ALL.len() + OTHERS.len()],
    refusals: [AtomicU64; REASONS.len()],
    /// The last request with a recorded trace, by the indices of its operation and its outcome.
    exemplars: Mutex<HashMap<(usize, usize), Exemplar>>,
}

/// A request with a recorded trace.
#[derive(Clone, Debug)]
pub(crate) struct Exemplar {
    pub(crate) span: SpanContext,
    pub(crate) took: Duration,
    pub(crate) at: SystemTime,
}

impl RequestNumbers {
    pub(super) fn add(&self, operation: &str, (outcome, reason): (Outcome, Option<&'static str>), took: Duration) {
        let times = self.times.get(place(operations(), operation));
        if let Some(histogram) = times.and_then(|times| times.get(outcome as usize)) {
            histogram.add(took);
        }
        if outcome == Outcome::Refused
            && let Some(count) = self.refusals.get(place(REASONS.into_iter(), reason.unwrap_or_default()))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps the span of a request as the exemplar of its operation and outcome.
    pub(super) fn keep_exemplar(&self, operation: &str, outcome: Outcome, span: SpanContext, took: Duration) {
        let exemplar = Exemplar { span, took, at: SystemTime::now() };
        let key = (place(operations(), operation), outcome as usize);
        self.exemplars.lock().unwrap_or_else(PoisonError::into_inner).insert(key, exemplar);
    }

    /// The last request of an operation with this outcome whose trace was recorded.
    pub(crate) fn exemplar(&self, operation: &str, outcome: Outcome) -> Option<Exemplar> {
        let key = (place(operations(), operation), outcome as usize);
        self.exemplars.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// The durations of all requests by operation and outcome. Empty distributions are omitted.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&'static str, Outcome, Distribution)> {
        operations().zip(&self.times).flat_map(|(operation, times)| {
            let read =
                Outcome::ALL.into_iter().zip(times).map(move |(outcome, time)| (operation, outcome, time.read()));
            read.filter(|(.., read)| read.count > 0)
        })
    }

    /// The number of refused requests by reason.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.refusals.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// The index of `name` in `names`. The last index if `names` does not contain `name`.
fn place(names: impl Iterator<Item = &'static str> + Clone, name: &str) -> usize {
    names.clone().position(|other| other == name).unwrap_or_else(|| names.count().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use annex_protocol::Method;
    use annex_telemetry::Outcome;

    use super::{REASONS, RequestNumbers, UNKNOWN, operations, place};

    #[test]
    fn every_operation_of_a2a_has_numbers_of_its_own() {
        for method in Method::ALL {
            assert_eq!(operations().nth(place(operations(), method.name())), Some(method.name()));
        }
        assert_eq!(operations().nth(place(operations(), "Another")), Some(UNKNOWN));
        assert_eq!(REASONS[place(REASONS.into_iter(), "another")], "other");
    }

    #[test]
    fn only_what_was_refused_counts_among_the_refusals() {
        let numbers = RequestNumbers::default();
        let took = std::time::Duration::from_millis(3);
        numbers.add("GetTask", (Outcome::Refused, Some("quota")), took);
        numbers.add("GetTask", (Outcome::Failed, Some("fault")), took);
        let refused: Vec<_> = numbers.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(refused, [("quota", 1)]);
        let times: Vec<_> =
            numbers.times().map(|(operation, outcome, read)| (operation, outcome, read.count)).collect();
        assert_eq!(times, [("GetTask", Outcome::Refused, 1), ("GetTask", Outcome::Failed, 1)]);
    }
}
