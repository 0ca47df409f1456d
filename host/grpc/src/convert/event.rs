//! What answers a message: at once, or event by event.

use annex_protocol::{SendMessageResponse, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

use super::json::write_metadata;
use super::{FieldError, IntoProto, write};
use crate::pb;

impl IntoProto<pb::SendMessageResponse> for SendMessageResponse {
    fn into_proto(self) -> Result<pb::SendMessageResponse, FieldError> {
        use pb::send_message_response::Payload;

        let payload = match self {
            Self::Task(task) => Payload::Task(write("task", task)?),
            Self::Message(message) => Payload::Message(write("message", message)?),
        };
        Ok(pb::SendMessageResponse { payload: Some(payload) })
    }
}

impl IntoProto<pb::StreamResponse> for StreamResponse {
    fn into_proto(self) -> Result<pb::StreamResponse, FieldError> {
        use pb::stream_response::Payload;

        let payload = match self {
            Self::Task(task) => Payload::Task(write("task", task)?),
            Self::Message(message) => Payload::Message(write("message", message)?),
            Self::StatusUpdate(event) => Payload::StatusUpdate(write("statusUpdate", event)?),
            Self::ArtifactUpdate(event) => Payload::ArtifactUpdate(write("artifactUpdate", event)?),
        };
        Ok(pb::StreamResponse { payload: Some(payload) })
    }
}

impl IntoProto<pb::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn into_proto(self) -> Result<pb::TaskStatusUpdateEvent, FieldError> {
        Ok(pb::TaskStatusUpdateEvent {
            task_id: self.task_id.into(),
            context_id: self.context_id.into(),
            status: Some(write("status", self.status)?),
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
