//! How a request ended, and counts of that.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Ok,
    /// The client has to change something, or to come again later.
    Refused,
    /// The server, its agent or an extension failed.
    Failed,
    /// The client has left before the end of its answer.
    Gone,
}

impl Outcome {
    /// All of them, each in the place of its number.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Refused, Self::Failed, Self::Gone];

    /// The name in lines and labels.
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

/// Numbers of requests by how they ended.
#[derive(Debug, Default)]
pub struct OutcomeCounts([AtomicU64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// Counts one request.
    pub fn add(&self, outcome: Outcome) {
        if let Some(count) = self.0.get(outcome as usize) {
            // Relaxed is enough: nothing is ordered by the number.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The numbers so far.
    pub fn read(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ALL.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
