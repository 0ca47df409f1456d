//! Reads the answers of servers into the types of 1.0.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::part::Rest;
use super::request::WireMessage;
use crate::proto_json::{FieldValue, readable};
use crate::v0_3::part::WirePart;
use crate::{
    Artifact, ArtifactId, ContextId, ExtensionUri, Json, JsonObject, Message, Metadata, Part, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};

readable! {
    struct WireTask {
        id: TaskId => "id",
        context_id: ContextId => "contextId",
        status: WireStatus => "status",
        artifacts: Vec<WireArtifact> => "artifacts",
        history: Vec<WireMessage> => "history",
        metadata: Metadata => "metadata",
    }

    struct WireStatus {
        state: WireState => "state",
        message: Option<WireMessage> => "message",
        timestamp: Option<Timestamp> => "timestamp" optional,
    }

    struct WireArtifact {
        artifact_id: ArtifactId => "artifactId",
        name: Option<String> => "name",
        description: Option<String> => "description",
        parts: Vec<WirePart<Rest>> => "parts",
        metadata: Metadata => "metadata",
        extensions: Vec<ExtensionUri> => "extensions",
    }

    struct WireStatusUpdate {
        task_id: TaskId => "taskId",
        context_id: ContextId => "contextId",
        status: WireStatus => "status",
        metadata: Metadata => "metadata",
    }

    struct WireArtifactUpdate {
        task_id: TaskId => "taskId",
        context_id: ContextId => "contextId",
        artifact: WireArtifact => "artifact",
        append: bool => "append",
        last_chunk: bool => "lastChunk",
        metadata: Metadata => "metadata",
    }
}

/// Reads the answer to `message:send`, or an event of a stream: an object whose only field names the type. `None` for an event of
/// an unknown type.
///
/// ```
/// use annex_protocol::v0_3::rest;
/// use annex_protocol::{Json, StreamResponse};
///
/// let json = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELLED"}}}"#;
/// let Some(StreamResponse::Task(task)) = rest::event(&Json::parse(json.to_owned())?)? else { unreachable!() };
/// assert_eq!(task.status.state, annex_protocol::TaskState::Canceled);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// When the value has another form.
pub fn event(json: &Json) -> Result<Option<StreamResponse>, serde_json::Error> {
    let object: JsonObject = json.to()?;
    // ProtoJSON accepts both spellings of a field.
    let event = object.iter().find_map(|(name, value)| {
        let event = match name {
            "task" => task(value).map(StreamResponse::Task),
            "message" | "msg" => value.to::<WireMessage>().map(|message| StreamResponse::Message(message.into())),
            "statusUpdate" | "status_update" => {
                value.to::<WireStatusUpdate>().map(|update| StreamResponse::StatusUpdate(update.into()))
            }
            "artifactUpdate" | "artifact_update" => {
                value.to::<WireArtifactUpdate>().map(|update| StreamResponse::ArtifactUpdate(update.into()))
            }
            _ => return None,
        };
        Some(event)
    });
    event.transpose()
}

/// Reads the answer to `GET /v1/tasks/{id}` or `POST /v1/tasks/{id}:cancel`.
///
/// # Errors
/// When the value is not a task.
pub fn task(json: &Json) -> Result<Task, serde_json::Error> {
    json.to::<WireTask>().map(Task::from)
}

/// Reads a part of a message or an artifact.
///
/// # Errors
/// When the value is not a part.
pub fn part(json: &Json) -> Result<Part, serde_json::Error> {
    json.to::<WirePart<Rest>>().map(WirePart::into_part)
}

impl From<WireTask> for Task {
    fn from(task: WireTask) -> Self {
        Self {
            id: task.id,
            context_id: task.context_id,
            status: task.status.into(),
            artifacts: task.artifacts.into_iter().map(Artifact::from).collect(),
            history: task.history.into_iter().map(Message::from).collect(),
            metadata: task.metadata,
        }
    }
}

impl From<WireStatus> for TaskStatus {
    fn from(status: WireStatus) -> Self {
        let WireStatus { state: WireState(state), message, timestamp } = status;
        Self { state, message: message.map(Message::from), timestamp }
    }
}

impl From<WireArtifact> for Artifact {
    fn from(artifact: WireArtifact) -> Self {
        Self {
            artifact_id: artifact.artifact_id,
            name: artifact.name,
            description: artifact.description,
            parts: artifact.parts.into_iter().map(WirePart::into_part).collect(),
            metadata: artifact.metadata,
            extensions: artifact.extensions,
        }
    }
}

impl From<WireStatusUpdate> for TaskStatusUpdateEvent {
    fn from(event: WireStatusUpdate) -> Self {
        let WireStatusUpdate { task_id, context_id, status, metadata } = event;
        Self { task_id, context_id, status: status.into(), metadata }
    }
}

impl From<WireArtifactUpdate> for TaskArtifactUpdateEvent {
    fn from(event: WireArtifactUpdate) -> Self {
        let WireArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = event;
        Self { task_id, context_id, artifact: artifact.into(), append, last_chunk, metadata }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WireState(TaskState);

impl FieldValue for WireState {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == "TASK_STATE_CANCELLED" {
            return Ok(Self(TaskState::Canceled));
        }
        // A state that 0.3 does not have is an error: were it read as unspecified, a task could end unnoticed.
        let named = TaskState::ALL.iter().find(|state| state.name() == name);
        named.copied().map(Self).ok_or_else(|| D::Error::custom(format_args!("unknown state `{name}`")))
    }

    fn is_default(&self) -> bool {
        self.0 == TaskState::Unspecified
    }
}
