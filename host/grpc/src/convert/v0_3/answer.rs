//! Tasks, and the answers to a message: one answer, or events of a stream.

use annex_protocol::{
    Artifact, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent,
};

use crate::convert::json::write_metadata;
use crate::convert::{FieldError, IntoProto, strings, text, write, write_all, write_optional};
use crate::pb::v0_3 as pb;

impl IntoProto<pb::SendMessageResponse> for SendMessageResponse {
    fn into_proto(self) -> Result<pb::SendMessageResponse, FieldError> {
        use pb::send_message_response::Payload;

        let payload = match self {
            Self::Task(task) => Payload::Task(write("task", task)?),
            Self::Message(message) => Payload::Msg(write("message", message)?),
        };
        Ok(pb::SendMessageResponse { payload: Some(payload) })
    }
}

impl IntoProto<pb::StreamResponse> for StreamResponse {
    fn into_proto(self) -> Result<pb::StreamResponse, FieldError> {
        use pb::stream_response::Payload;

        let payload = match self {
            Self::Task(task) => Payload::Task(write("task", task)?),
            Self::Message(message) => Payload::Msg(write("message", message)?),
            Self::StatusUpdate(event) => Payload::StatusUpdate(write("statusUpdate", event)?),
            Self::ArtifactUpdate(event) => Payload::ArtifactUpdate(write("artifactUpdate", event)?),
        };
        Ok(pb::StreamResponse { payload: Some(payload) })
    }
}

impl IntoProto<pb::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn into_proto(self) -> Result<pb::TaskStatusUpdateEvent, FieldError> {
        let state = self.status.state;
        Ok(pb::TaskStatusUpdateEvent {
            task_id: self.task_id.into(),
            context_id: self.context_id.into(),
            status: Some(write("status", self.status)?),
            // Clients of 0.3 end their stream at this event.
            r#final: state.is_terminal() || state.is_interrupted(),
            metadata: write_metadata("metadata", self.metadata)?,
        })
    }
}

impl IntoProto<pb::TaskArtifactUpdateEvent> for TaskArtifactUpdateEvent {
    fn into_proto(self) -> Result<pb::TaskArtifactUpdateEvent, FieldError> {
        Ok(pb::TaskArtifactUpdateEvent {
            task_id: self.task_id.into(),
            context_id: self.context_id.into(),
            artifact: Some(write("artifact", self.artifact)?),
            append: self.append,
            last_chunk: self.last_chunk,
            metadata: write_metadata("metadata", self.metadata)?,
        })
    }
}

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
            // The states have the same numbers in both versions.
            state: self.state.number(),
            update: write_optional("message", self.message)?,
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
