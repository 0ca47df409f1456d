//! Request messages in the form in which they are sent, with the tenant of the interface.

use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, JsonObject, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};

/// The request message of an operation.
pub(super) trait Params {
    /// The message as JSON, with the tenant of the interface. It replaces the tenant that the caller set. If the
    /// interface has no tenant, a message of A2A has none either (section 8.3.2).
    fn into_json(self, tenant: Option<&str>) -> serde_json::Result<String>;
}

macro_rules! with_tenant {
    ($($message:ty),+ $(,)?) => {$(
        impl Params for $message {
            fn into_json(mut self, tenant: Option<&str>) -> serde_json::Result<String> {
                self.tenant = tenant.map(str::to_owned);
                serde_json::to_string(&self)
            }
        }
    )+};
}

with_tenant! {
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
}

/// The parameters of an extension's method.
pub(super) struct MethodParams<'a>(pub(super) &'a JsonObject);

impl Params for MethodParams<'_> {
    fn into_json(self, tenant: Option<&str>) -> serde_json::Result<String> {
        let Self(params) = self;
        // Without a tenant on the card, a `tenant` among an extension's parameters is the extension's own.
        let Some(tenant) = tenant else { return Ok(params.to_json_string()) };
        let mut params = params.clone();
        params.insert("tenant".to_owned(), Json::string(tenant));
        Ok(params.to_json_string())
    }
}
