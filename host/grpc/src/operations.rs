//! The operations that the binding calls.

use std::fmt;
use std::pin::Pin;

use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ExtensionUri,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest, Json,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, SendMessageRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig,
};
use async_trait::async_trait;
use futures::Stream;
use http::{Extensions, HeaderMap};

/// The version of A2A whose service was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceVersion {
    /// `lf.a2a.v1.A2AService` of A2A 1.0, or the service for methods of extensions.
    #[default]
    V1_0,
    /// `a2a.v1.A2AService` of A2A 0.3.
    V0_3,
}

/// The service parameters of one call (specification section 3.2.6), as they were received.
#[derive(Clone, Default)]
pub struct CallParameters {
    /// The version of the service that was called.
    pub service: ServiceVersion,
    /// The value of `a2a-version`, trimmed; `None` if missing or empty.
    pub version: Option<String>,
    /// The URIs in all `a2a-extensions` values, and in calls of 0.3 also in all `x-a2a-extensions` values. Each URI
    /// appears once, in the order of first mention.
    pub extensions: Vec<ExtensionUri>,
    /// All metadata except the binary entries (`…-bin`), for authentication. Headers of gRPC itself, such as
    /// `grpc-timeout`, are included.
    pub headers: HeaderMap,
    /// Values that an outer layer attached to the request, for example the caller.
    pub context: Extensions,
}

/// Prints the names of the headers only, because their values are often credentials.
impl fmt::Debug for CallParameters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.keys().map(http::HeaderName::as_str).collect();
        let mut debug = formatter.debug_struct("CallParameters");
        debug.field("service", &self.service).field("version", &self.version);
        debug.field("extensions", &self.extensions).field("headers", &headers).finish()
    }
}

/// An answer, and the extensions that were active. The initial metadata lists them as `a2a-extensions`, and for clients of 0.3 as
/// `x-a2a-extensions`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<T> {
    /// The answer itself.
    pub value: T,
    /// The active extensions.
    pub active: Vec<ExtensionUri>,
}

/// The events of one stream. An error ends the call with its status.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<StreamResponse, A2aError>> + Send>>;

/// The results of a streaming method. An error ends the call with its status.
pub type Results = Pin<Box<dyn Stream<Item = Result<Json, A2aError>> + Send>>;

/// The answer of a method of an extension.
pub enum MethodReply {
    /// One result.
    Value(Json),
    /// A stream of results.
    Results(Results),
}

/// The operations of A2A (specification section 3.1), with one method for each rpc of 1.0. The rpcs of 0.3 call the same methods,
/// with [`ServiceVersion::V0_3`].
///
/// Requests have passed their `validate`, so that required fields are present. The exception is the id of the config in a
/// GetTaskPushNotificationConfig of 0.3: an empty id asks for the first config of the task. The implementation is responsible for
/// everything else: version, authentication, activation of extensions, tenants, limits on ids. The future of a method
/// is dropped when its client disconnects.
#[async_trait]
pub trait Operations: Send + Sync + 'static {
    /// SendMessage. The answer is a task, or a message of the agent.
    async fn send_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<Reply<SendMessageResponse>, A2aError>;

    /// SendStreamingMessage. The stream has the events of the turn.
    async fn send_streaming_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<Reply<EventStream>, A2aError>;

    /// GetTask. The answer is the task as it is now.
    async fn get_task(&self, parameters: CallParameters, request: GetTaskRequest) -> Result<Reply<Task>, A2aError>;

    /// ListTasks. The answer is one page of the caller's tasks.
    async fn list_tasks(
        &self,
        parameters: CallParameters,
        request: ListTasksRequest,
    ) -> Result<Reply<ListTasksResponse>, A2aError>;

    /// CancelTask. The answer is the task after its cancellation.
    async fn cancel_task(
        &self,
        parameters: CallParameters,
        request: CancelTaskRequest,
    ) -> Result<Reply<Task>, A2aError>;

    /// SubscribeToTask. The stream has the task, then its further events.
    async fn subscribe_to_task(
        &self,
        parameters: CallParameters,
        request: SubscribeToTaskRequest,
    ) -> Result<Reply<EventStream>, A2aError>;

    /// CreateTaskPushNotificationConfig. The answer is the config as stored.
    async fn create_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: TaskPushNotificationConfig,
    ) -> Result<Reply<TaskPushNotificationConfig>, A2aError>;

    /// GetTaskPushNotificationConfig. The answer is one config of a task.
    async fn get_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Reply<TaskPushNotificationConfig>, A2aError>;

    /// ListTaskPushNotificationConfigs. The answer is one page of a task's configs.
    async fn list_task_push_notification_configs(
        &self,
        parameters: CallParameters,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Reply<ListTaskPushNotificationConfigsResponse>, A2aError>;

    /// DeleteTaskPushNotificationConfig. The task's other configs stay.
    async fn delete_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Reply<()>, A2aError>;

    /// GetExtendedAgentCard. The answer is the card for authenticated callers.
    async fn get_extended_agent_card(
        &self,
        parameters: CallParameters,
        request: GetExtendedAgentCardRequest,
    ) -> Result<Reply<AgentCard>, A2aError>;

    /// Calls a method of an extension; `params` is any JSON.
    async fn call_method(
        &self,
        parameters: CallParameters,
        method: String,
        params: Json,
    ) -> Result<Reply<MethodReply>, A2aError>;

    /// Tells whether the health service reports SERVING. An implementation returns false while the server starts or
    /// drains.
    fn is_serving(&self) -> bool {
        true
    }
}
