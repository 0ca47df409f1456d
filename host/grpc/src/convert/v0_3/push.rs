//! Push notification configs, which have resource names instead of ids.

use annex_protocol::{AuthenticationInfo, ListTaskPushNotificationConfigsResponse, Secret, TaskPushNotificationConfig};

use super::request::task_id;
use crate::convert::push::{exposed, secret};
use crate::convert::{FieldError, FromProto, IntoProto, non_empty, text, write_all};
use crate::pb::v0_3 as pb;

impl FromProto<pb::CreateTaskPushNotificationConfigRequest> for TaskPushNotificationConfig {
    fn from_proto(proto: pb::CreateTaskPushNotificationConfigRequest) -> Result<Self, FieldError> {
        let task_id = task_id("parent", &proto.parent)?;
        let config = proto.config.and_then(|config| config.push_notification_config).unwrap_or_default();
        let config = Self::from_proto(config).map_err(|error| error.within("config.pushNotificationConfig"))?;
        Ok(Self { id: config.id.or_else(|| non_empty(proto.config_id)), task_id: Some(task_id), ..config })
    }
}

/// Reads a config inside a message, which belongs to the task of the message.
impl FromProto<pb::PushNotificationConfig> for TaskPushNotificationConfig {
    fn from_proto(proto: pb::PushNotificationConfig) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: None,
            id: non_empty(proto.id),
            task_id: None,
            url: proto.url,
            token: secret(proto.token),
            authentication: proto.authentication.and_then(authentication),
            receiver_is_v0_3: true,
        })
    }
}

/// Reads the authentication, which has one scheme in 1.0. If a receiver of 0.3 lists several schemes, the first scheme is used.
fn authentication(proto: pb::AuthenticationInfo) -> Option<AuthenticationInfo> {
    let scheme = proto.schemes.into_iter().next().unwrap_or_default();
    let credentials: Option<Secret> = secret(proto.credentials);
    // Credentials without a scheme stay, so that the check names the field that is missing.
    let is_empty = scheme.is_empty() && credentials.is_none();
    (!is_empty).then_some(AuthenticationInfo { scheme, credentials })
}

impl IntoProto<pb::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<pb::TaskPushNotificationConfig, FieldError> {
        let task = self.task_id.as_ref().map_or("", |id| id.as_str());
        let id = self.id.as_deref().unwrap_or_default();
        let name = format!("tasks/{task}/pushNotificationConfigs/{id}");
        let authentication = self
            .authentication
            .map(|info| pb::AuthenticationInfo { schemes: vec![info.scheme], credentials: exposed(info.credentials) });
        let config =
            pb::PushNotificationConfig { id: text(self.id), url: self.url, token: exposed(self.token), authentication };
        Ok(pb::TaskPushNotificationConfig { name, push_notification_config: Some(config) })
    }
}

impl IntoProto<pb::ListTaskPushNotificationConfigResponse> for ListTaskPushNotificationConfigsResponse {
    fn into_proto(self) -> Result<pb::ListTaskPushNotificationConfigResponse, FieldError> {
        Ok(pb::ListTaskPushNotificationConfigResponse {
            configs: write_all("configs", self.configs)?,
            next_page_token: text(self.next_page_token),
        })
    }
}
