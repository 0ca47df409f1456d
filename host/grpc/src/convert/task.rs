//! Converts tasks and artifacts from and to Protobuf.

use annex_protocol::{Artifact, ExtensionUri, Json, ListTasksResponse, Metadata, Task, TaskState, TaskStatus};

use super::json::write_metadata;
use super::{
    FieldError, FromProto, IntoProto, at, enumeration, non_empty, read_all, read_optional, strings, text, write,
    write_all, write_optional,
};
use crate::pb;

/// The metadata key of the reason why gRPC cannot carry a task. In a list, the reason replaces the content of such a
/// task.
const NOT_CARRIED: &str = "annex/not-carried";

impl IntoProto<pb::Task> for Task {
    fn into_proto(self) -> Result<pb::Task, FieldError> {
        Ok(pb::Task {
            id: self.id.into(),
            context_id: self.context_id.into(),
            status: Some(write("status", self.status)?),
            artifacts: write_all("artifacts", self.artifacts)?,
            history: write_all("history", self.history)?,
            metadata: write_metadata("metadata", self.metadata)?,
        })
    }
}

impl IntoProto<pb::TaskStatus> for TaskStatus {
    fn into_proto(self) -> Result<pb::TaskStatus, FieldError> {
        Ok(pb::TaskStatus {
            state: self.state.number(),
            message: write_optional("message", self.message)?,
            timestamp: write_optional("timestamp", self.timestamp)?,
        })
    }
}

impl IntoProto<pb::Artifact> for Artifact {
    fn into_proto(self) -> Result<pb::Artifact, FieldError> {
        Ok(pb::Artifact {
            artifact_id: self.artifact_id.into(),
            name: text(self.name),
            description: text(self.description),
            parts: write_all("parts", self.parts.into())?,
            metadata: write_metadata("metadata", self.metadata)?,
            extensions: strings(self.extensions),
        })
    }
}

impl IntoProto<pb::ListTasksResponse> for ListTasksResponse {
    fn into_proto(self) -> Result<pb::ListTasksResponse, FieldError> {
        Ok(pb::ListTasksResponse {
            tasks: self.tasks.into_iter().enumerate().map(listed).collect::<Result<_, _>>()?,
            next_page_token: self.next_page_token,
            page_size: self.page_size,
            total_size: self.total_size,
        })
    }
}

/// Writes one task of a list. If protobuf cannot carry the task, it is reduced to its ids and state, with the reason in
/// its metadata. The other tasks of the list can then still be read.
fn listed((index, task): (usize, Task)) -> Result<pb::Task, FieldError> {
    let status = TaskStatus { state: task.status.state, timestamp: task.status.timestamp, message: None };
    let known = Task { id: task.id.clone(), context_id: task.context_id.clone(), status, ..Task::default() };
    task.into_proto().or_else(|error| {
        let reason = Json::string(&error.within(at("tasks", index)).to_string());
        Task { metadata: Metadata::from_iter([(NOT_CARRIED.to_owned(), reason)]), ..known }.into_proto()
    })
}

impl FromProto<pb::Task> for Task {
    fn from_proto(proto: pb::Task) -> Result<Self, FieldError> {
        Ok(Self {
            id: proto.id.into(),
            context_id: proto.context_id.into(),
            status: read_optional("status", proto.status)?.unwrap_or_default(),
            artifacts: read_all("artifacts", proto.artifacts)?,
            history: read_all("history", proto.history)?,
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
        })
    }
}

impl FromProto<pb::TaskStatus> for TaskStatus {
    fn from_proto(proto: pb::TaskStatus) -> Result<Self, FieldError> {
        Ok(Self {
            state: enumeration("state", "TaskState", proto.state, TaskState::ALL)?,
            message: read_optional("message", proto.message)?,
            // Only agents send a status. An invalid timestamp is dropped.
            timestamp: read_optional("timestamp", proto.timestamp).unwrap_or_default(),
        })
    }
}

impl FromProto<pb::Artifact> for Artifact {
    fn from_proto(mut proto: pb::Artifact) -> Result<Self, FieldError> {
        // Only agents send artifacts. Parts without content are dropped.
        proto.parts.retain(|part| part.content.is_some());
        Ok(Self {
            artifact_id: proto.artifact_id.into(),
            name: non_empty(proto.name),
            description: non_empty(proto.description),
            parts: read_all("parts", proto.parts)?.into(),
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
            extensions: proto.extensions.into_iter().map(ExtensionUri::from).collect(),
        })
    }
}

impl FromProto<pb::ListTasksResponse> for ListTasksResponse {
    fn from_proto(proto: pb::ListTasksResponse) -> Result<Self, FieldError> {
        Ok(Self {
            tasks: read_all("tasks", proto.tasks)?,
            next_page_token: proto.next_page_token,
            page_size: proto.page_size,
            total_size: proto.total_size,
        })
    }
}
