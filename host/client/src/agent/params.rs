//! Request messages as they are sent: with the tenant of the interface.

use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, JsonObject, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};

/// The request message of an operation.
pub(super) trait Params {
    /// The message as JSON. Section 8.3.2: the interface's tenant is in each request, and without one there is none,
    /// whatever the caller has set.
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

/// The parameters of a method that an extension defines.
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
