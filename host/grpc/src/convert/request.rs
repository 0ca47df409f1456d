//! The requests of the operations. That of CreateTaskPushNotificationConfig is in `push`.

use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest, TaskState,
};

use super::{FieldError, FromProto, enumeration, non_empty, read_optional};
use crate::pb;

/// An absent message is read as an empty one, which `validate` names.
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
        Ok(Self { tenant: non_empty(proto.tenant), id: proto.id.into(), history_length: proto.history_length })
    }
}

impl FromProto<pb::ListTasksRequest> for ListTasksRequest {
    fn from_proto(proto: pb::ListTasksRequest) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: non_empty(proto.tenant),
            context_id: non_empty(proto.context_id),
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
