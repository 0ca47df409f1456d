//! Converts the requests of the operations from and to Protobuf. The request of CreateTaskPushNotificationConfig is in
//! `push`.

use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest, TaskState,
};

use super::json::write_metadata;
use super::{FieldError, FromProto, IntoProto, enumeration, non_empty, read_optional, text, write, write_optional};
use crate::pb;

/// An absent message is read as an empty one, which `validate` reports.
impl FromProto<pb::SendMessageRequest> for SendMessageRequest {
    fn from_proto(proto: pb::SendMessageRequest) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: non_empty(proto.tenant),
            message: read_optional("message", proto.message)?.unwrap_or_default(),
            configuration: read_optional("configuration", proto.configuration)?.unwrap_or_default(),
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
        })
    }
}

impl FromProto<pb::SendMessageConfiguration> for SendMessageConfiguration {
    fn from_proto(proto: pb::SendMessageConfiguration) -> Result<Self, FieldError> {
        let config = read_optional("taskPushNotificationConfig", proto.task_push_notification_config)?;
        Ok(Self {
            accepted_output_modes: proto.accepted_output_modes,
            task_push_notification_config: config,
            history_length: proto.history_length,
            return_immediately: proto.return_immediately,
        })
    }
}

impl FromProto<pb::GetTaskRequest> for GetTaskRequest {
    fn from_proto(proto: pb::GetTaskRequest) -> Result<Self, FieldError> {
        // `history_length` is optional in the proto file, so that 0 (no history) and absent (no limit) stay apart.
        Ok(Self { tenant: non_empty(proto.tenant), id: proto.id.into(), history_length: proto.history_length })
    }
}

impl FromProto<pb::ListTasksRequest> for ListTasksRequest {
    fn from_proto(proto: pb::ListTasksRequest) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: non_empty(proto.tenant),
            context_id: non_empty(proto.context_id),
            // The number 0 is TASK_STATE_UNSPECIFIED, which as a filter means any state.
            status: enumeration("status", "TaskState", proto.status, TaskState::ALL)?,
            page_size: proto.page_size,
            page_token: non_empty(proto.page_token),
            history_length: proto.history_length,
            status_timestamp_after: read_optional("statusTimestampAfter", proto.status_timestamp_after)?,
            include_artifacts: proto.include_artifacts,
        })
    }
}

impl FromProto<pb::CancelTaskRequest> for CancelTaskRequest {
    fn from_proto(proto: pb::CancelTaskRequest) -> Result<Self, FieldError> {
        let metadata = read_optional("metadata", proto.metadata)?.unwrap_or_default();
        Ok(Self { tenant: non_empty(proto.tenant), id: proto.id.into(), metadata })
    }
}

impl FromProto<pb::SubscribeToTaskRequest> for SubscribeToTaskRequest {
    fn from_proto(proto: pb::SubscribeToTaskRequest) -> Result<Self, FieldError> {
        Ok(Self { tenant: non_empty(proto.tenant), id: proto.id.into() })
    }
}

impl FromProto<pb::GetTaskPushNotificationConfigRequest> for GetTaskPushNotificationConfigRequest {
    fn from_proto(proto: pb::GetTaskPushNotificationConfigRequest) -> Result<Self, FieldError> {
        Ok(Self { tenant: non_empty(proto.tenant), task_id: proto.task_id.into(), id: proto.id })
    }
}

impl FromProto<pb::ListTaskPushNotificationConfigsRequest> for ListTaskPushNotificationConfigsRequest {
    fn from_proto(proto: pb::ListTaskPushNotificationConfigsRequest) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: non_empty(proto.tenant),
            task_id: proto.task_id.into(),
            page_size: proto.page_size,
            page_token: non_empty(proto.page_token),
        })
    }
}

impl FromProto<pb::DeleteTaskPushNotificationConfigRequest> for DeleteTaskPushNotificationConfigRequest {
    fn from_proto(proto: pb::DeleteTaskPushNotificationConfigRequest) -> Result<Self, FieldError> {
        Ok(Self { tenant: non_empty(proto.tenant), task_id: proto.task_id.into(), id: proto.id })
    }
}

impl FromProto<pb::GetExtendedAgentCardRequest> for GetExtendedAgentCardRequest {
    fn from_proto(proto: pb::GetExtendedAgentCardRequest) -> Result<Self, FieldError> {
        Ok(Self { tenant: non_empty(proto.tenant) })
    }
}

impl IntoProto<pb::SendMessageRequest> for SendMessageRequest {
    fn into_proto(self) -> Result<pb::SendMessageRequest, FieldError> {
        Ok(pb::SendMessageRequest {
            tenant: text(self.tenant),
            message: Some(write("message", self.message)?),
            configuration: Some(write("configuration", self.configuration)?),
            metadata: write_metadata("metadata", self.metadata)?,
        })
    }
}

impl IntoProto<pb::SendMessageConfiguration> for SendMessageConfiguration {
    fn into_proto(self) -> Result<pb::SendMessageConfiguration, FieldError> {
        let config = write_optional("taskPushNotificationConfig", self.task_push_notification_config)?;
        Ok(pb::SendMessageConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            task_push_notification_config: config,
            history_length: self.history_length,
            return_immediately: self.return_immediately,
        })
    }
}

impl IntoProto<pb::GetTaskRequest> for GetTaskRequest {
    fn into_proto(self) -> Result<pb::GetTaskRequest, FieldError> {
        Ok(pb::GetTaskRequest { tenant: text(self.tenant), id: self.id.into(), history_length: self.history_length })
    }
}

impl IntoProto<pb::ListTasksRequest> for ListTasksRequest {
    fn into_proto(self) -> Result<pb::ListTasksRequest, FieldError> {
        Ok(pb::ListTasksRequest {
            tenant: text(self.tenant),
            context_id: text(self.context_id),
            status: self.status.number(),
            page_size: self.page_size,
            page_token: text(self.page_token),
            history_length: self.history_length,
            status_timestamp_after: write_optional("statusTimestampAfter", self.status_timestamp_after)?,
            include_artifacts: self.include_artifacts,
        })
    }
}

impl IntoProto<pb::CancelTaskRequest> for CancelTaskRequest {
    fn into_proto(self) -> Result<pb::CancelTaskRequest, FieldError> {
        let metadata = write_metadata("metadata", self.metadata)?;
        Ok(pb::CancelTaskRequest { tenant: text(self.tenant), id: self.id.into(), metadata })
    }
}

impl IntoProto<pb::SubscribeToTaskRequest> for SubscribeToTaskRequest {
    fn into_proto(self) -> Result<pb::SubscribeToTaskRequest, FieldError> {
        Ok(pb::SubscribeToTaskRequest { tenant: text(self.tenant), id: self.id.into() })
    }
}

impl IntoProto<pb::GetTaskPushNotificationConfigRequest> for GetTaskPushNotificationConfigRequest {
    fn into_proto(self) -> Result<pb::GetTaskPushNotificationConfigRequest, FieldError> {
        let tenant = text(self.tenant);
        let task_id = self.task_id.into();
        Ok(pb::GetTaskPushNotificationConfigRequest { tenant, task_id, id: self.id })
    }
}

impl IntoProto<pb::ListTaskPushNotificationConfigsRequest> for ListTaskPushNotificationConfigsRequest {
    fn into_proto(self) -> Result<pb::ListTaskPushNotificationConfigsRequest, FieldError> {
        Ok(pb::ListTaskPushNotificationConfigsRequest {
            tenant: text(self.tenant),
            task_id: self.task_id.into(),
            page_size: self.page_size,
            page_token: text(self.page_token),
        })
    }
}

impl IntoProto<pb::DeleteTaskPushNotificationConfigRequest> for DeleteTaskPushNotificationConfigRequest {
    fn into_proto(self) -> Result<pb::DeleteTaskPushNotificationConfigRequest, FieldError> {
        let tenant = text(self.tenant);
        let task_id = self.task_id.into();
        Ok(pb::DeleteTaskPushNotificationConfigRequest { tenant, task_id, id: self.id })
    }
}

impl IntoProto<pb::GetExtendedAgentCardRequest> for GetExtendedAgentCardRequest {
    fn into_proto(self) -> Result<pb::GetExtendedAgentCardRequest, FieldError> {
        Ok(pb::GetExtendedAgentCardRequest { tenant: text(self.tenant) })
    }
}
