//! The size of a task, and its limits.

use std::fmt;

use annex_protocol::{Message, StreamResponse, Task};

use crate::{TaskEvent, size};

/// Limits on the size of one task. A store does not check these limits; the code that appends to a task checks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// Bytes of the task: of its texts and of the values that hold them.
    pub bytes: usize,
    /// Messages of its history, the one of its status among them.
    pub messages: usize,
    /// Artifacts.
    pub artifacts: usize,
}

/// The size of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskSize {
    /// Bytes of the task: of its texts and of the values that hold them.
    pub bytes: usize,
    /// Messages of its history, the one of its status among them.
    pub messages: usize,
    /// Artifacts.
    pub artifacts: usize,
    /// Bytes of its events since the task was read. More than the size of the task if events replaced earlier content.
    pub logged: usize,
}

/// An exceeded limit, and the size that the task would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    measure: Measure,
    found: usize,
    limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Bytes,
    Messages,
    Artifacts,
    Logged,
}

/// The events of a task may take this many times the bytes that the task itself may have.
const LOG_FACTOR: usize = 4;
/// Messages of the client leave one part in this many of each limit free, so that an answer of the agent still fits.
const ANSWER_PART: usize = 16;

impl fmt::Display for Excess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, limit, .. } = self;
        match self.measure {
            Measure::Bytes => write!(formatter, "{found} bytes, and {limit} is the limit"),
            Measure::Messages => write!(formatter, "{found} messages, and {limit} is the limit"),
            Measure::Artifacts => write!(formatter, "{found} artifacts, and {limit} is the limit"),
            Measure::Logged => write!(formatter, "{found} bytes of events, and {limit} is the limit"),
        }
    }
}

impl TaskLimits {
    /// Checks a task after an event of its agent.
    ///
    /// # Errors
    /// The first limit that the task exceeds.
    pub(crate) fn check(&self, size: &TaskSize) -> Result<(), Excess> {
        first_excess([
            (Measure::Bytes, size.bytes, self.bytes),
            (Measure::Messages, size.messages, self.messages),
            (Measure::Artifacts, size.artifacts, self.artifacts),
            // Replaced artifacts stay in the log: an agent could fill the store with a task that itself stays small.
            (Measure::Logged, size.logged, self.bytes.saturating_mul(LOG_FACTOR)),
        ])
    }

    /// Checks a task with a further message of its client. The message must leave room for the agent's answer.
    ///
    /// # Errors
    /// The first limit that the task would exceed.
    pub fn check_message(&self, size: &TaskSize, message: &Message) -> Result<(), Excess> {
        let added = size::of_message(message);
        // A small limit, too, leaves at least one to the answer.
        let for_clients = |limit: usize| limit.saturating_sub((limit / ANSWER_PART).max(1));
        // A message of a client brings no artifacts, so their number is not checked.
        first_excess([
            (Measure::Bytes, size.bytes.saturating_add(added), for_clients(self.bytes)),
            // Where one message is the limit, the one that begins the task is let in all the same.
            (Measure::Messages, size.messages.saturating_add(1), for_clients(self.messages).max(1)),
            (Measure::Logged, size.logged.saturating_add(added), for_clients(self.bytes.saturating_mul(LOG_FACTOR))),
        ])
    }
}

fn first_excess<const N: usize>(measured: [(Measure, usize, usize); N]) -> Result<(), Excess> {
    let beyond = measured.into_iter().find(|(_, found, limit)| found > limit);
    beyond.map_or(Ok(()), |(measure, found, limit)| Err(Excess { measure, found, limit }))
}

impl TaskSize {
    /// The size of a task whose events have been measured to be `logged` bytes.
    pub(crate) fn of(task: &Task, logged: usize) -> Self {
        let messages = task.history.len() + usize::from(task.status.message.is_some());
        Self { bytes: size::of_task(task), messages, artifacts: task.artifacts.len(), logged }
    }

    /// The size after an event, estimated from the event alone: replaced artifacts are not subtracted.
    pub(crate) fn with(self, event: &TaskEvent) -> Self {
        let messages = match event {
            TaskEvent::Message(_) => 1,
            TaskEvent::Stream(event) => match event.as_ref() {
                StreamResponse::StatusUpdate(update) => usize::from(update.status.message.is_some()),
                StreamResponse::ArtifactUpdate(_) => 0,
                // These change no task, see `snapshot::apply`.
                StreamResponse::Task(_) | StreamResponse::Message(_) => return self,
            },
        };
        let bytes = size::of_event(event);
        Self {
            bytes: self.bytes.saturating_add(bytes),
            messages: self.messages + messages,
            artifacts: self.artifacts,
            logged: self.logged.saturating_add(bytes),
        }
    }
}
