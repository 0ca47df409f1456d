//! Answers and stream events (A2A 0.3 sections 7.1 and 7.2).

use serde::Serialize;

use super::message::Message;
use super::task::{Artifact, Task, TaskStatus};
use crate::{ContextId, Metadata, SendMessageResponse, StreamResponse, TaskId};

/// The result of `message/send`, or an event of a stream, written as 0.3 JSON: an object whose type is in `kind`.
///
/// ```
/// use annex_protocol::v0_3::Event;
///
/// let answer = serde_json::from_str(r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#)?;
/// let json = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#;
/// assert_eq!(serde_json::to_string(&Event::from(&answer))?, json);
/// # let _: annex_protocol::StreamResponse = answer;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Event<'a> {
    /// The current state of the whole task.
    Task(Task<'a>),
    /// A direct answer, without a task.
    Message(Message<'a>),
    /// A change of the status.
    StatusUpdate(TaskStatusUpdateEvent<'a>),
    /// A new artifact or a new piece of one.
    ArtifactUpdate(TaskArtifactUpdateEvent<'a>),
}

impl<'a> From<&'a SendMessageResponse> for Event<'a> {
    fn from(response: &'a SendMessageResponse) -> Self {
        match response {
            SendMessageResponse::Task(task) => Self::Task(task.into()),
            SendMessageResponse::Message(message) => Self::Message(message.into()),
        }
    }
}

impl<'a> From<&'a StreamResponse> for Event<'a> {
    fn from(response: &'a StreamResponse) -> Self {
        match response {
            StreamResponse::Task(task) => Self::Task(task.into()),
            StreamResponse::Message(message) => Self::Message(message.into()),
            StreamResponse::StatusUpdate(event) => Self::StatusUpdate(event.into()),
            StreamResponse::ArtifactUpdate(event) => Self::ArtifactUpdate(event.into()),
        }
    }
}

/// A change of the status, written as 0.3 JSON. `final` is true for a terminal or interrupted task: clients of 0.3 end
/// their stream at that event.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent<'a> {
    kind: &'static str,
    task_id: &'a TaskId,
    context_id: &'a ContextId,
    status: TaskStatus<'a>,
    r#final: bool,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

impl<'a> From<&'a crate::TaskStatusUpdateEvent> for TaskStatusUpdateEvent<'a> {
    fn from(event: &'a crate::TaskStatusUpdateEvent) -> Self {
        Self {
            kind: "status-update",
            task_id: &event.task_id,
            context_id: &event.context_id,
            status: (&event.status).into(),
            r#final: is_final(event),
            metadata: &event.metadata,
        }
    }
}

pub(super) fn is_final(event: &crate::TaskStatusUpdateEvent) -> bool {
    event.status.state.is_terminal() || event.status.state.is_interrupted()
}

/// A new artifact or a new piece of one, written as 0.3 JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent<'a> {
    kind: &'static str,
    task_id: &'a TaskId,
    context_id: &'a ContextId,
    artifact: Artifact<'a>,
    append: bool,
    last_chunk: bool,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

impl<'a> From<&'a crate::TaskArtifactUpdateEvent> for TaskArtifactUpdateEvent<'a> {
    fn from(event: &'a crate::TaskArtifactUpdateEvent) -> Self {
        Self {
            kind: "artifact-update",
            task_id: &event.task_id,
            context_id: &event.context_id,
            artifact: (&event.artifact).into(),
            append: event.append,
            last_chunk: event.last_chunk,
            metadata: &event.metadata,
        }
    }
}
