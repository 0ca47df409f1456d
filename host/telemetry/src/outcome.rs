//! The outcomes of requests, and counters of outcomes.

use std::sync::atomic::{AtomicU64, Ordering};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was answered.
    Ok,
    /// The request was refused. The client must change the request or send it again later.
    Refused,
    /// The server, the agent or an extension failed.
    Failed,
    /// The client disconnected before the end of the answer.
    Gone,
}

impl Outcome {
    /// All outcomes. The position of each outcome in this list equals its discriminant.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Refused, Self::Failed, Self::Gone];

    /// The name of the outcome in log lines and metric labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
}

/// Counts requests by their outcome.
#[derive(Debug, Default)]
pub struct OutcomeCounts([AtomicU64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// Counts one request.
    pub fn add(&self, outcome: Outcome) {
        if let Some(count) = self.0.get(outcome as usize) {
            // Relaxed: no other memory depends on the number.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of requests so far with each outcome.
    pub fn read(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ALL.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
