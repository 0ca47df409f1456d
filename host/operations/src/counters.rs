//! Counters for operators: messages by reception, turns by end and duration, and the durations of agents' calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_agent::CallTimes;
use annex_protocol::{A2aError, TaskState};
use annex_telemetry::{Distribution, Histogram};

/// The way in which the server received a message.
#[derive(Clone, Copy)]
pub enum Reception {
    /// A turn began.
    Started,
    /// The message is a repetition.
    Repeated,
    /// The message was refused because of an error of the client. Sending the same message again fails again.
    Refused,
    /// The server had no capacity. The client can send the message again.
    Overloaded,
    /// The server, its agent or an extension failed.
    Failed,
}

impl Reception {
    pub const ALL: [Self; 5] = [Self::Started, Self::Repeated, Self::Refused, Self::Overloaded, Self::Failed];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Repeated => "repeated",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::Failed => "failed",
        }
    }
}

impl From<&A2aError> for Reception {
    fn from(error: &A2aError) -> Self {
        match error {
            A2aError::Overloaded { .. } | A2aError::QuotaExceeded { .. } => Self::Overloaded,
            _ if error.http_status() >= 500 => Self::Failed,
            _ => Self::Refused,
        }
    }
}

/// The end of a turn.
#[derive(Clone, Copy)]
pub enum TurnEnd {
    Completed,
    Failed,
    Canceled,
    Rejected,
    /// The task waits for its client.
    Interrupted,
    /// The turn has no task: the agent answered with a message, or an error occurred before the task was created.
    Taskless,
    /// Another process owns the task, or may own it.
    Lost,
}

impl TurnEnd {
    pub const ALL: [Self; 7] =
        [Self::Completed, Self::Failed, Self::Canceled, Self::Rejected, Self::Interrupted, Self::Taskless, Self::Lost];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::Interrupted => "interrupted",
            Self::Taskless => "taskless",
            Self::Lost => "lost",
        }
    }
}

impl From<TaskState> for TurnEnd {
    fn from(state: TaskState) -> Self {
        match state {
            TaskState::Completed => Self::Completed,
            TaskState::Canceled => Self::Canceled,
            TaskState::Rejected => Self::Rejected,
            TaskState::InputRequired | TaskState::AuthRequired => Self::Interrupted,
            // The task is not finished although the turn has ended: its end could not be stored.
            TaskState::Failed | TaskState::Unspecified | TaskState::Submitted | TaskState::Working => Self::Failed,
        }
    }
}

#[derive(Default)]
pub struct Counters {
    messages: [AtomicU64; Reception::ALL.len()],
    turns: [Histogram; TurnEnd::ALL.len()],
    /// The durations of the calls that agents make to models, other agents and tools.
    pub calls: Arc<CallTimes>,
}

impl Counters {
    pub fn message(&self, reception: Reception) {
        add(&self.messages, reception as usize);
    }

    pub fn turn(&self, end: TurnEnd, took: Duration) {
        if let Some(turns) = self.turns.get(end as usize) {
            turns.add(took);
        }
    }

    pub fn messages(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reception::ALL.into_iter().map(Reception::name).zip(self.messages.iter().map(read))
    }

    pub fn turns(&self) -> impl Iterator<Item = (&'static str, Distribution)> {
        TurnEnd::ALL.into_iter().map(TurnEnd::name).zip(self.turns.iter().map(Histogram::read))
    }
}

fn add(counts: &[AtomicU64], place: usize) {
    if let Some(count) = counts.get(place) {
        // Relaxed ordering is enough: operators only read the counts, and no other memory depends on them.
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
