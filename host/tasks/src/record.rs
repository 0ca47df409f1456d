//! Tasks as they are stored: in a database JSON texts, exactly as they were encoded; in memory the values.

use std::borrow::Cow;
use std::sync::Arc;

use annex_protocol::{
    Message, Part, StreamResponse, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use serde::de::Error as _;
use serde_json::Error as JsonError;

use crate::event::{Kind, TaskEvent};
use crate::snapshot::apply;
use crate::{Place, Remembered, StoreError, TaskSnapshot};

/// A task as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTask {
    /// The task.
    pub id: TaskId,
    /// The number of its last event, which the next append expects.
    pub seq: u64,
    /// Counts its turns, and the processes that have taken it from another.
    pub epoch: u64,
    /// True if a turn works on the task, as far as the store knows.
    pub is_worked_on: bool,
    /// True if the task is in a final state.
    pub is_finished: bool,
    pub(crate) content: TaskContent,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskContent {
    Json(Arc<str>),
    Since(Arc<Since>),
    Value(TaskSnapshot),
}

impl StoredTask {
    /// The place for a writer that belongs to no turn.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { seq: self.seq, epoch: self.epoch, ..Place::default() }
    }

    /// True if the task waits for its client and no turn works on the task, as far as the store knows.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.is_finished && !self.is_worked_on
    }

    /// About how many bytes there are to read, or to write as JSON.
    pub fn bytes(&self) -> usize {
        match &self.content {
            TaskContent::Json(json) => json.len(),
            TaskContent::Since(since) => since.bytes(),
            TaskContent::Value(task) => task.size().bytes,
        }
    }

    /// The task as JSON on one line.
    ///
    /// # Errors
    /// [`StoreError::Encoding`].
    pub fn json(&self) -> Result<Cow<'_, str>, StoreError> {
        match &self.content {
            TaskContent::Json(json) => Ok(Cow::Borrowed(json)),
            // A large task has no JSON of its own: its row is not written again with each event, so readers pay for it.
            TaskContent::Since(_) => Ok(Cow::Owned(self.decode()?.json()?.into_owned())),
            TaskContent::Value(task) => Ok(task.json()?),
        }
    }

    /// Decodes the task, where it is not a value already.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] when it was stored by a version of the software that wrote something else.
    pub fn decode(&self) -> Result<TaskSnapshot, StoreError> {
        let decoded = match &self.content {
            TaskContent::Json(json) => serde_json::from_str::<Task>(json).map(TaskSnapshot::from),
            TaskContent::Since(since) => since.decode(),
            TaskContent::Value(task) => Ok(task.clone()),
        };
        decoded.map_err(|source| StoreError::Unreadable { task: self.id.clone(), source })
    }
}

/// A status without a timestamp is older than all others.
const NO_TIMESTAMP: i64 = i64::MIN;

/// The events of a task from its last whole JSON on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Since {
    /// The task before the events; empty if the events contain the whole task.
    pub(crate) json: String,
    pub(crate) events: Vec<(Kind, String)>,
}

impl Since {
    fn decode(&self) -> Result<TaskSnapshot, JsonError> {
        let mut events = self.events.iter().map(|(kind, json)| TaskEvent::decode(*kind, json));
        let mut task =
            if self.json.is_empty() { first(events.next())? } else { serde_json::from_str::<Task>(&self.json)? };
        for event in events {
            apply(&mut task, &event?);
        }
        // The log counts towards the limits of the task, because artifacts that were replaced stay in it.
        Ok(TaskSnapshot::read(task, self.logged()))
    }

    fn bytes(&self) -> usize {
        self.json.len() + self.logged()
    }

    fn logged(&self) -> usize {
        self.events.iter().map(|(_, json)| json.len()).sum()
    }
}

/// The task as it was made, which is its first event.
fn first(event: Option<Result<TaskEvent, JsonError>>) -> Result<Task, JsonError> {
    if let Some(TaskEvent::Stream(event)) = event.transpose()?
        && let StreamResponse::Task(task) = event.as_ref()
    {
        return Ok(task.clone());
    }
    Err(JsonError::custom("its first event is no task"))
}

/// The values that tasks are sorted and swept by.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) state: TaskState,
    pub(crate) status_at: i64,
    /// The time when the task reached its final state; `None` for an unfinished task.
    pub(crate) finished_at: Option<i64>,
}

/// The state of a task for a memory store that needs room. Holds the time since which the task may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// A turn works on the task, so the task stays.
    Runs,
    /// The task waits for its client, since this time.
    Waits(i64),
    Finished(i64),
}

impl Standing {
    pub(crate) fn new(state: TaskState, timestamp: Option<Timestamp>) -> Self {
        // A final status without a timestamp counts from now, so that its task is swept in time.
        let finished = state.is_terminal().then(|| timestamp.unwrap_or_else(Timestamp::now).as_millis());
        let status_at = timestamp.map_or(NO_TIMESTAMP, Timestamp::as_millis);
        Self { state, status_at, finished_at: finished }
    }
}

/// The result for a message that came before: its answer as JSON, or the task.
pub(crate) fn repeated(task: &TaskId, answer: Option<&str>) -> Result<Remembered, StoreError> {
    let Some(answer) = answer else { return Ok(Remembered::Same(task.clone())) };
    let message = serde_json::from_str(answer);
    let message = message.map_err(|source| StoreError::Unreadable { task: task.clone(), source })?;
    Ok(Remembered::Answered(message))
}

/// True if a turn works on a task after these events, which bring the task into `state`. `before` is true if a turn
/// worked on the task before the events.
#[must_use]
pub fn is_worked_on(before: bool, events: &[TaskEvent], state: TaskState) -> bool {
    let turned = events.iter().rev().find_map(|event| match event {
        // Its client has answered, and a turn begins.
        TaskEvent::Message(_) => Some(true),
        TaskEvent::Stream(event) => {
            let tells = matches!(**event, StreamResponse::StatusUpdate(_) | StreamResponse::Task(_));
            tells.then(|| !state.is_interrupted())
        }
    });
    !state.is_terminal() && turned.unwrap_or(before)
}

/// True if the task needs a process: the task is neither finished nor waiting for its client.
pub(crate) fn is_abandoned_by_crash(state: TaskState) -> bool {
    // A task that waits needs no process: the next message of its client takes it up.
    !state.is_terminal() && !state.is_interrupted()
}

/// Brings the task into a final state, and makes the event that says so.
pub(crate) fn end(task: &mut Task, state: TaskState, reason: Option<&str>) -> TaskEvent {
    let told = |reason| Message::agent(task.context_id.clone(), Some(task.id.clone()), vec![Part::text(reason)]);
    let status = TaskStatus { state, message: reason.map(told), timestamp: Some(Timestamp::now()) };
    let task_id = task.id.clone();
    let context_id = task.context_id.clone();
    let event = TaskStatusUpdateEvent { task_id, context_id, status, ..TaskStatusUpdateEvent::default() };
    task.apply_status(&event);
    StreamResponse::StatusUpdate(event).into()
}
