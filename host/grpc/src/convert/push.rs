//! Converts push notification configs from and to Protobuf.

use annex_protocol::{AuthenticationInfo, ListTaskPushNotificationConfigsResponse, Secret, TaskPushNotificationConfig};

use super::{FieldError, FromProto, IntoProto, non_empty, read_all, read_optional, text, write_all, write_optional};
use crate::pb;

impl FromProto<pb::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn from_proto(proto: pb::TaskPushNotificationConfig) -> Result<Self, FieldError> {
        Ok(Self {
            tenant: non_empty(proto.tenant),
            id: non_empty(proto.id),
            task_id: non_empty(proto.task_id),
            url: proto.url,
            token: secret(proto.token),
            authentication: read_optional("authentication", proto.authentication)?,
            receiver_is_v0_3: false,
        })
    }
}

impl FromProto<pb::AuthenticationInfo> for AuthenticationInfo {
    fn from_proto(proto: pb::AuthenticationInfo) -> Result<Self, FieldError> {
        Ok(Self { scheme: proto.scheme, credentials: secret(proto.credentials) })
    }
}

impl IntoProto<pb::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<pb::TaskPushNotificationConfig, FieldError> {
        Ok(pb::TaskPushNotificationConfig {
            tenant: text(self.tenant),
            id: text(self.id),
            task_id: text(self.task_id),
            url: self.url,
            token: exposed(self.token),
            authentication: write_optional("authentication", self.authentication)?,
        })
    }
}

impl IntoProto<pb::AuthenticationInfo> for AuthenticationInfo {
    fn into_proto(self) -> Result<pb::AuthenticationInfo, FieldError> {
        Ok(pb::AuthenticationInfo { scheme: self.scheme, credentials: exposed(self.credentials) })
    }
}

impl IntoProto<pb::ListTaskPushNotificationConfigsResponse> for ListTaskPushNotificationConfigsResponse {
    fn into_proto(self) -> Result<pb::ListTaskPushNotificationConfigsResponse, FieldError> {
        Ok(pb::ListTaskPushNotificationConfigsResponse {
            configs: write_all("configs", self.configs)?,
            next_page_token: text(self.next_page_token),
        })
    }
}

pub(super) fn secret(credential: String) -> Option<Secret> {
    (!credential.is_empty()).then(|| Secret::new(credential))
}

pub(super) fn exposed(secret: Option<Secret>) -> String {
    // Here the credential leaves `Secret`, which hides it. `pb.rs` keeps it out of `Debug` on this side.
    secret.map(|secret| secret.expose().to_owned()).unwrap_or_default()
}

impl FromProto<pb::ListTaskPushNotificationConfigsResponse> for ListTaskPushNotificationConfigsResponse {
    fn from_proto(proto: pb::ListTaskPushNotificationConfigsResponse) -> Result<Self, FieldError> {
        Ok(Self { configs: read_all("configs", proto.configs)?, next_page_token: non_empty(proto.next_page_token) })
    }
}
