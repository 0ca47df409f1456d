//! Writes tasks, messages and events. Readers of ProtoJSON refuse unknown fields, so only fields of `a2a.v1` are written.

use serde::Serialize;

use super::part::Part;
use crate::v0_3::event::is_final;
use crate::{
    ArtifactId, ContextId, ExtensionUri, MessageId, Metadata, Role, SendMessageResponse, StreamResponse, TaskId,
    TaskState, Timestamp,
};

/// The answer to `message:send`, or an event of a stream: an object whose only field names the type.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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

/// A message, written as ProtoJSON of `a2a.v1`, which has no field for `referenceTaskIds`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Message<'a> {
    message_id: &'a MessageId,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    role: Role,
    content: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [ExtensionUri],
}

impl<'a> From<&'a crate::Message> for Message<'a> {
    fn from(message: &'a crate::Message) -> Self {
        Self {
            message_id: &message.message_id,
            context_id: message.context_id.as_ref(),
            task_id: message.task_id.as_ref(),
            role: message.role,
            content: message.parts.iter().map(Part).collect(),
            metadata: &message.metadata,
            extensions: &message.extensions,
        }
    }
}

/// A task, written as ProtoJSON of `a2a.v1`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task<'a> {
    id: &'a TaskId,
    context_id: &'a ContextId,
    status: TaskStatus<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Artifact<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

impl<'a> From<&'a crate::Task> for Task<'a> {
    fn from(task: &'a crate::Task) -> Self {
        Self {
            id: &task.id,
            context_id: &task.context_id,
            status: (&task.status).into(),
            artifacts: task.artifacts.iter().map(Artifact::from).collect(),
            history: task.history.iter().map(Message::from).collect(),
            metadata: &task.metadata,
        }
    }
}

/// The status of a task, written as ProtoJSON of `a2a.v1`.
#[derive(Clone, Debug, Serialize)]
pub struct TaskStatus<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

impl<'a> From<&'a crate::TaskStatus> for TaskStatus<'a> {
    fn from(status: &'a crate::TaskStatus) -> Self {
        Self {
            state: state_name(status.state),
            message: status.message.as_ref().map(Message::from),
            timestamp: status.timestamp,
        }
    }
}

/// The name of the state. `a2a.v1` spells one state differently: `TASK_STATE_CANCELLED`.
fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Canceled => "TASK_STATE_CANCELLED",
        other => other.name(),
    }
}

/// An artifact, written as ProtoJSON of `a2a.v1`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact<'a> {
    artifact_id: &'a ArtifactId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parts: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [ExtensionUri],
}

impl<'a> From<&'a crate::Artifact> for Artifact<'a> {
    fn from(artifact: &'a crate::Artifact) -> Self {
        Self {
            artifact_id: &artifact.artifact_id,
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: artifact.parts.iter().map(Part).collect(),
            metadata: &artifact.metadata,
            extensions: &artifact.extensions,
        }
    }
}

/// A change of the status, written as ProtoJSON of `a2a.v1`. `final` is true when the task is terminal or interrupted.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent<'a> {
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
            task_id: &event.task_id,
            context_id: &event.context_id,
            status: (&event.status).into(),
            r#final: is_final(event),
            metadata: &event.metadata,
        }
    }
}

/// A new artifact or a new piece of one, written as ProtoJSON of `a2a.v1`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent<'a> {
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
            task_id: &event.task_id,
            context_id: &event.context_id,
            artifact: (&event.artifact).into(),
            append: event.append,
            last_chunk: event.last_chunk,
            metadata: &event.metadata,
        }
    }
}
