//! Push notification configs (A2A 0.3 sections 6.8 to 6.10).

use serde::Serialize;

use crate::proto_json::readable;
use crate::{AuthenticationInfo, ListTaskPushNotificationConfigsResponse, Secret, TaskId};

/// A push notification config and the id of its task, written as 0.3 JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPushNotificationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    push_notification_config: PushNotificationConfig<'a>,
}

/// The receiver of the updates. The JSON of this object is the same for JSON-RPC and HTTP+JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PushNotificationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a Secret>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication: Option<Authentication<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct Authentication<'a> {
    schemes: [&'a str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<&'a Secret>,
}

impl<'a> From<&'a crate::TaskPushNotificationConfig> for TaskPushNotificationConfig<'a> {
    fn from(config: &'a crate::TaskPushNotificationConfig) -> Self {
        Self { task_id: config.task_id.as_ref(), push_notification_config: config.into() }
    }
}

impl<'a> From<&'a crate::TaskPushNotificationConfig> for PushNotificationConfig<'a> {
    fn from(config: &'a crate::TaskPushNotificationConfig) -> Self {
        let authentication = config.authentication.as_ref();
        Self {
            id: config.id.as_deref(),
            url: &config.url,
            token: config.token.as_ref(),
            authentication: authentication
                .map(|info| Authentication { schemes: [&info.scheme], credentials: info.credentials.as_ref() }),
        }
    }
}

/// The result of `tasks/pushNotificationConfig/list`: a bare array. 0.3 has no pages, so the answer must hold all
/// configs.
pub fn push_configs(response: &ListTaskPushNotificationConfigsResponse) -> Vec<TaskPushNotificationConfig<'_>> {
    response.configs.iter().map(TaskPushNotificationConfig::from).collect()
}

readable! {
    /// A config as clients of 0.3 send it.
    pub(super) struct WirePushConfig {
        pub(super) id: Option<String> => "id",
        url: String => "url",
        token: Option<Secret> => "token",
        authentication: Option<WireAuthentication> => "authentication",
    }

    /// The content of the `Authorization` header.
    struct WireAuthentication {
        schemes: Vec<String> => "schemes",
        credentials: Option<Secret> => "credentials",
    }
}

impl WirePushConfig {
    /// Converts to a config of 1.0. `task_id` is `None` for a config inside a message.
    pub(super) fn of(self, task_id: Option<TaskId>) -> crate::TaskPushNotificationConfig {
        crate::TaskPushNotificationConfig {
            tenant: None,
            id: self.id,
            task_id,
            url: self.url,
            token: self.token,
            authentication: self.authentication.and_then(WireAuthentication::into_info),
            receiver_is_v0_3: true,
        }
    }
}

impl WireAuthentication {
    /// Converts to the authentication of 1.0, which has one scheme. If a receiver of 0.3 lists several schemes, the first
    /// scheme is used.
    fn into_info(self) -> Option<AuthenticationInfo> {
        let scheme = self.schemes.into_iter().next().unwrap_or_default();
        // Credentials without a scheme stay, with an empty scheme, so that the check names the field that is missing.
        let nothing_said = scheme.is_empty() && self.credentials.is_none();
        (!nothing_said).then_some(AuthenticationInfo { scheme, credentials: self.credentials })
    }
}
