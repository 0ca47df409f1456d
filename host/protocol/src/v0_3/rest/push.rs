//! Push notification configs, which have resource names instead of ids.

use serde::Serialize;

use crate::v0_3::push::PushNotificationConfig;

/// A push notification config, written as ProtoJSON of `a2a.v1`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPushNotificationConfig<'a> {
    name: String,
    push_notification_config: PushNotificationConfig<'a>,
}

impl<'a> From<&'a crate::TaskPushNotificationConfig> for TaskPushNotificationConfig<'a> {
    fn from(config: &'a crate::TaskPushNotificationConfig) -> Self {
        let task = config.task_id.as_ref().map_or("", |id| id.as_str());
        let id = config.id.as_deref().unwrap_or_default();
        // `a2a.v1` has no ids in this message: the path of the resource names both task and config.
        Self { name: format!("tasks/{task}/pushNotificationConfigs/{id}"), push_notification_config: config.into() }
    }
}

/// The configs of a task, written as ProtoJSON of `a2a.v1`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListTaskPushNotificationConfigsResponse<'a> {
    configs: Vec<TaskPushNotificationConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

impl<'a> From<&'a crate::ListTaskPushNotificationConfigsResponse> for ListTaskPushNotificationConfigsResponse<'a> {
    fn from(response: &'a crate::ListTaskPushNotificationConfigsResponse) -> Self {
        Self {
            configs: response.configs.iter().map(TaskPushNotificationConfig::from).collect(),
            next_page_token: response.next_page_token.as_deref(),
        }
    }
}
