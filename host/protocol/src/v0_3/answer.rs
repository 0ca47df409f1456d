//! The answers of servers of 0.3, read into the types of 1.0 (A2A 0.3 sections 6.1 to 6.3, 7.1 and 7.2).

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::message::WireMessage;
use super::part::{JsonRpc, WirePart};
use super::task::state_name;
use crate::proto_json::{FieldValue, readable};
use crate::{
    Artifact, ArtifactId, ContextId, ExtensionUri, Json, Message, Metadata, Part, StreamResponse, Task,
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
        parts: Vec<WirePart<JsonRpc>> => "parts",
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

    /// The field that tells the type of an answer. Every answer has it.
    struct Kind {
        kind: String => "kind",
    }
}

/// Reads the result of `message/send`, or an event of a stream: an object whose type is in `kind`.
///
/// ```
/// use annex_protocol::{Json, StreamResponse, v0_3};
///
/// let json = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required"}}"#;
/// let StreamResponse::Task(task) = v0_3::answer::event(&Json::parse(json.to_owned())?)? else { unreachable!() };
/// assert_eq!(task.status.state, annex_protocol::TaskState::InputRequired);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// When the value has another form.
pub fn event(json: &Json) -> Result<StreamResponse, serde_json::Error> {
    // The text is read twice, because `kind` may follow the fields whose meaning it decides. serde's tagged enums would
    // buffer these fields, and free-form JSON would lose its text.
    let Kind { kind } = json.to()?;
    Ok(match kind.as_str() {
        "task" => StreamResponse::Task(task(json)?),
        "message" => StreamResponse::Message(json.to::<WireMessage>()?.into()),
        "status-update" => StreamResponse::StatusUpdate(json.to::<WireStatusUpdate>()?.into()),
        "artifact-update" => StreamResponse::ArtifactUpdate(json.to::<WireArtifactUpdate>()?.into()),
        _ => {
            let reason = "kind is none of `task`, `message`, `status-update`, `artifact-update`";
            return Err(serde_json::Error::custom(reason));
        }
    })
}

/// Reads the result of `tasks/get` or `tasks/cancel`.
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
    json.to::<WirePart<JsonRpc>>().map(WirePart::into_part)
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
        // A state that 0.3 does not have is an error: were it read as unspecified, a task could end unnoticed.
        let named = TaskState::ALL.iter().find(|state| state_name(**state) == name);
        named.copied().map(Self).ok_or_else(|| D::Error::custom(format_args!("unknown state `{name}`")))
    }

    fn is_default(&self) -> bool {
        self.0 == TaskState::Unspecified
    }
}
