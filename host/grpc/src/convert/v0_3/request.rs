//! The requests of the operations. Tasks and configs have resource names instead of ids, such as `tasks/t-1`.

use annex_protocol::v0_3::request::{history_length, with_a_part};
use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest, TaskId,
};

use crate::convert::{FieldError, FromProto, non_empty, read_optional};
use crate::pb::v0_3 as pb;

/// Reads a request without a message as a request with an empty message. `validate` refuses such a request.
impl FromProto<pb::SendMessageRequest> for SendMessageRequest {
    fn from_proto(proto: pb::SendMessageRequest) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: None,
            message: with_a_part(read_optional("message", proto.request)?.unwrap_or_default()),
            // Without a configuration, all its fields have their defaults: the client does not wait.
            configuration: SendMessageConfiguration::from_proto(proto.configuration.unwrap_or_default())
                .map_err(|error| error.within("configuration"))?,
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
        })
    }
}

impl FromProto<pb::SendMessageConfiguration> for SendMessageConfiguration {
    fn from_proto(proto: pb::SendMessageConfiguration) -> Result<Self, FieldError> {
        Ok(Self {
            accepted_output_modes: proto.accepted_output_modes,
            task_push_notification_config: read_optional("pushNotification", proto.push_notification)?,
            // A number that is absent is 0 in proto3, and 0 is no limit in 0.3.
            history_length: history_length(Some(proto.history_length)),
            // As on HTTP+JSON of 0.3: the client waits only if `blocking` is true.
            return_immediately: !proto.blocking,
        })
    }
}

impl FromProto<pb::GetTaskRequest> for GetTaskRequest {
    fn from_proto(proto: pb::GetTaskRequest) -> Result<Self, FieldError> {
        let history_length = history_length(Some(proto.history_length));
        Ok(Self { tenant: None, id: task_id("name", &proto.name)?, history_length })
    }
}

impl FromProto<pb::CancelTaskRequest> for CancelTaskRequest {
    fn from_proto(proto: pb::CancelTaskRequest) -> Result<Self, FieldError> {
        Ok(Self { id: task_id("name", &proto.name)?, ..Self::default() })
    }
}

impl FromProto<pb::TaskSubscriptionRequest> for SubscribeToTaskRequest {
    fn from_proto(proto: pb::TaskSubscriptionRequest) -> Result<Self, FieldError> {
        Ok(Self { tenant: None, id: task_id("name", &proto.name)? })
    }
}

impl FromProto<pb::GetTaskPushNotificationConfigRequest> for GetTaskPushNotificationConfigRequest {
    fn from_proto(proto: pb::GetTaskPushNotificationConfigRequest) -> Result<Self, FieldError> {
        let (task_id, id) = config_name(&proto.name)?;
        Ok(Self { tenant: None, task_id, id })
    }
}

impl FromProto<pb::DeleteTaskPushNotificationConfigRequest> for DeleteTaskPushNotificationConfigRequest {
    fn from_proto(proto: pb::DeleteTaskPushNotificationConfigRequest) -> Result<Self, FieldError> {
        let (task_id, id) = config_name(&proto.name)?;
        Ok(Self { tenant: None, task_id, id })
    }
}

impl FromProto<pb::ListTaskPushNotificationConfigRequest> for ListTaskPushNotificationConfigsRequest {
    fn from_proto(proto: pb::ListTaskPushNotificationConfigRequest) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: None,
            task_id: task_id("parent", &proto.parent)?,
            // The proto file promises all configs without a size.
            page_size: if proto.page_size == 0 { i32::MAX } else { proto.page_size },
            page_token: non_empty(proto.page_token),
        })
    }
}

impl FromProto<pb::GetAgentCardRequest> for GetExtendedAgentCardRequest {
    fn from_proto(_: pb::GetAgentCardRequest) -> Result<Self, FieldError> {
        Ok(Self::default())
    }
}

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs/";

/// Reads the id from the resource name of a task, `tasks/{id}`.
pub(super) fn task_id(field: &str, name: &str) -> Result<TaskId, FieldError> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty());
    id.map(TaskId::from).ok_or_else(|| FieldError::new(field, "must have the form `tasks/{id}`"))
}

/// Reads the ids from the resource name of a config, `tasks/{id}/pushNotificationConfigs/{config id}`. The id of the config may
/// be empty.
fn config_name(name: &str) -> Result<(TaskId, String), FieldError> {
    let ids = name.strip_prefix(TASKS).and_then(|rest| rest.split_once(CONFIGS)).filter(|(task, _)| !task.is_empty());
    let misnamed = || FieldError::new("name", "must have the form `tasks/{id}/pushNotificationConfigs/{id}`");
    ids.map(|(task, config)| (TaskId::from(task), config.to_owned())).ok_or_else(misnamed)
}
