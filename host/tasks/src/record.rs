//! Tasks and events as they are stored: JSON texts, exactly as they were encoded.

use annex_protocol::{
    Message, Part, StreamResponse, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use serde_json::Error as JsonError;

use crate::{Remembered, StoreError};

/// What is appended to a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskEvent {
    /// An event that readers of the task are shown.
    Stream(Box<StreamResponse>),
    /// A message joins the history, as when a client's message starts a further turn. Readers are not shown it.
    Message(Box<Message>),
}

impl From<StreamResponse> for TaskEvent {
    fn from(event: StreamResponse) -> Self {
        Self::Stream(Box::new(event))
    }
}

impl From<Message> for TaskEvent {
    fn from(message: Message) -> Self {
        Self::Message(Box::new(message))
    }
}

/// Of which kind an event is; the name is what databases hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Message,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Message => "message",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        if name == Self::Message.name() { Self::Message } else { Self::Stream }
    }
}

/// An event as it was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// Its place in the log of its task; the first is 1.
    pub seq: u64,
    pub(crate) kind: Kind,
    pub(crate) json: String,
}

impl StoredEvent {
    /// The event as JSON, a StreamResponse on one line; `None` when readers are not shown it.
    pub fn stream_json(&self) -> Option<&str> {
        (self.kind == Kind::Stream).then_some(&self.json)
    }

    /// Decodes the event.
    ///
    /// # Errors
    /// When it was stored by a version of the software that wrote something else.
    pub fn decode(&self) -> Result<TaskEvent, JsonError> {
        match self.kind {
            Kind::Stream => serde_json::from_str::<StreamResponse>(&self.json).map(TaskEvent::from),
            Kind::Message => serde_json::from_str::<Message>(&self.json).map(TaskEvent::from),
        }
    }
}

/// A task as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTask {
    /// The task.
    pub id: TaskId,
    /// The number of its last event, which the next append expects.
    pub seq: u64,
    pub(crate) json: String,
}

impl StoredTask {
    /// The task as JSON on one line.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The task as JSON on one line.
    pub fn into_json(self) -> String {
        self.json
    }

    /// Decodes the task.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] when it was stored by a version of the software that wrote something else.
    pub fn decode(&self) -> Result<Task, StoreError> {
        serde_json::from_str(&self.json).map_err(|source| StoreError::Unreadable { task: self.id.clone(), source })
    }
}

/// A status without a timestamp is older than all others.
const NO_TIMESTAMP: i64 = i64::MIN;

/// What a store keeps of a task beside its ids.
pub(crate) struct Snapshot {
    pub(crate) state: TaskState,
    pub(crate) status_at: i64,
    /// When the task reached its final state; `None` while it can go on.
    pub(crate) finished_at: Option<i64>,
    pub(crate) json: String,
}

impl Snapshot {
    pub(crate) fn of(task: &Task) -> Result<Self, StoreError> {
        let TaskStatus { state, timestamp, .. } = task.status;
        let finished = state.is_terminal().then(|| timestamp.unwrap_or_else(Timestamp::now).as_millis());
        Ok(Self {
            state,
            status_at: timestamp.map_or(NO_TIMESTAMP, Timestamp::as_millis),
            finished_at: finished,
            json: serde_json::to_string(task)?,
        })
    }

    /// The first event of a task: the task itself.
    pub(crate) fn as_event(&self) -> String {
        // What serde makes of `StreamResponse::Task`, without encoding the task once more.
        format!(r#"{{"task":{}}}"#, self.json)
    }
}

/// The kind of an event and its JSON.
pub(crate) fn encode(event: &TaskEvent) -> Result<(Kind, String), StoreError> {
    Ok(match event {
        TaskEvent::Stream(event) => (Kind::Stream, serde_json::to_string(event)?),
        TaskEvent::Message(message) => (Kind::Message, serde_json::to_string(message)?),
    })
}

/// What a message is told that came before: its answer as JSON, or the task.
pub(crate) fn repeated(task: &TaskId, answer: Option<&str>) -> Result<Remembered, StoreError> {
    let Some(answer) = answer else { return Ok(Remembered::Same(task.clone())) };
    let message = serde_json::from_str(answer);
    let message = message.map_err(|source| StoreError::Unreadable { task: task.clone(), source })?;
    Ok(Remembered::Answered(message))
}

/// Whether nobody will take the task on after a crash: it was neither finished nor waiting for its client.
pub(crate) fn is_abandoned_by_crash(state: TaskState) -> bool {
    !state.is_terminal() && !state.is_interrupted()
}

/// Makes the task FAILED, and the event that says so.
pub(crate) fn fail(task: &mut Task, reason: &str) -> TaskEvent {
    let message = Message::agent(task.context_id.clone(), Some(task.id.clone()), vec![Part::text(reason)]);
    let status = TaskStatus { state: TaskState::Failed, message: Some(message), timestamp: Some(Timestamp::now()) };
    let (task_id, context_id) = (task.id.clone(), task.context_id.clone());
    let event = TaskStatusUpdateEvent { task_id, context_id, status, ..TaskStatusUpdateEvent::default() };
    task.apply_status(&event);
    StreamResponse::StatusUpdate(event).into()
}
