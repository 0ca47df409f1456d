//! Tasks, their status and their artifacts (A2A 0.3 sections 6.1 to 6.3 and 6.7).

use serde::Serialize;

use super::message::Message;
use super::part::Part;
use crate::{ArtifactId, ContextId, ExtensionUri, Metadata, TaskId, TaskState, Timestamp};

/// A task, written as 0.3 JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task<'a> {
    kind: &'static str,
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
            kind: "task",
            id: &task.id,
            context_id: &task.context_id,
            status: (&task.status).into(),
            artifacts: task.artifacts.iter().map(Artifact::from).collect(),
            history: task.history.iter().map(Message::from).collect(),
            metadata: &task.metadata,
        }
    }
}

/// The status of a task, written as 0.3 JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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

/// The name of a state in 0.3.
pub(super) fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unknown",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input-required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "auth-required",
    }
}

/// An artifact, written as 0.3 JSON.
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
