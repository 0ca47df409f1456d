//! The answers to a message: one answer, or events of a stream.

use annex_protocol::{SendMessageResponse, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

use super::json::write_metadata;
use super::{FieldError, FromProto, IntoProto, read, read_optional, write};
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

impl FromProto<pb::SendMessageResponse> for SendMessageResponse {
    fn from_proto(proto: pb::SendMessageResponse) -> Result<Self, FieldError> {
        use pb::send_message_response::Payload;

        match proto.payload {
            Some(Payload::Task(task)) => read("task", task).map(Self::Task),
            Some(Payload::Message(message)) => read("message", message).map(Self::Message),
            None => Err(FieldError::new("", "one of `task`, `message` is required")),
        }
    }
}

impl FromProto<pb::StreamResponse> for StreamResponse {
    fn from_proto(proto: pb::StreamResponse) -> Result<Self, FieldError> {
        use pb::stream_response::Payload;

        match proto.payload {
            Some(Payload::Task(task)) => read("task", task).map(Self::Task),
            Some(Payload::Message(message)) => read("message", message).map(Self::Message),
            Some(Payload::StatusUpdate(event)) => read("statusUpdate", event).map(Self::StatusUpdate),
            Some(Payload::ArtifactUpdate(event)) => read("artifactUpdate", event).map(Self::ArtifactUpdate),
            None => {
                let missing = "one of `task`, `message`, `statusUpdate`, `artifactUpdate` is required";
                Err(FieldError::new("", missing))
            }
        }
    }
}

impl FromProto<pb::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn from_proto(proto: pb::TaskStatusUpdateEvent) -> Result<Self, FieldError> {
        Ok(Self {
            task_id: proto.task_id.into(),
            context_id: proto.context_id.into(),
            // As on the JSON bindings, a missing required field in an agent's answer gets its default.
            status: read_optional("status", proto.status)?.unwrap_or_default(),
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
        })
    }
}

impl FromProto<pb::TaskArtifactUpdateEvent> for TaskArtifactUpdateEvent {
    fn from_proto(proto: pb::TaskArtifactUpdateEvent) -> Result<Self, FieldError> {
        Ok(Self {
            task_id: proto.task_id.into(),
            context_id: proto.context_id.into(),
            artifact: read_optional("artifact", proto.artifact)?.unwrap_or_default(),
            append: proto.append,
            last_chunk: proto.last_chunk,
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
        })
    }
}
