//! Tasks and artifacts.

use annex_protocol::{Artifact, ListTasksResponse, Task, TaskStatus};

use super::json::write_metadata;
use super::{FieldError, IntoProto, strings, text, write, write_all, write_optional};
use crate::pb;

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
            parts: write_all("parts", self.parts)?,
            metadata: write_metadata("metadata", self.metadata)?,
            extensions: strings(self.extensions),
        })
    }
}

impl IntoProto<pb::ListTasksResponse> for ListTasksResponse {
    fn into_proto(self) -> Result<pb::ListTasksResponse, FieldError> {
        Ok(pb::ListTasksResponse {
            tasks: write_all("tasks", self.tasks)?,
            next_page_token: self.next_page_token,
            page_size: self.page_size,
            total_size: self.total_size,
        })
    }
}
