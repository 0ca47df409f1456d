//! The operations of A2A with their parameters, and the one function that performs all of them: [`RequestHandler::perform`].
//!
//! A binding decodes a request into an [`Operation`] and encodes the [`OperationResult`].

use std::sync::Arc;

use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use futures::future::BoxFuture;

use crate::answer::{Answer, EventStream, Sent, ShownTask};
use crate::methods::MethodResult;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;

/// An operation with its decoded parameters, which are not validated yet.
pub enum Operation {
    SendMessage(SendMessageRequest),
    SendStreamingMessage(SendMessageRequest),
    GetTask(GetTaskRequest),
    ListTasks(ListTasksRequest),
    CancelTask(CancelTaskRequest),
    SubscribeToTask(SubscribeToTaskRequest),
    /// SubscribeToTask of 0.3: the stream ends with the turn. In 1.0 it ends with the task.
    SubscribeToTurn(SubscribeToTaskRequest),
    CreatePushConfig(TaskPushNotificationConfig),
    GetPushConfig(GetTaskPushNotificationConfigRequest),
    /// GetTaskPushNotificationConfig of 0.3 without a config id: the first config of the task.
    GetFirstPushConfig(GetTaskPushNotificationConfigRequest),
    ListPushConfigs(ListTaskPushNotificationConfigsRequest),
    DeletePushConfig(DeleteTaskPushNotificationConfigRequest),
    GetExtendedAgentCard(GetExtendedAgentCardRequest),
    CallMethod(MethodRequest),
}

/// The parameters of a call of an extension's method.
pub struct MethodRequest {
    /// The tenant that the request names.
    pub tenant: Option<String>,
    /// The name of the extension. `None` if the binding only has the method name.
    pub extension: Option<String>,
    /// The name of the method as the extension declares it.
    pub method: String,
    /// The parameters for the extension. They must be an object.
    pub params: Json,
}

/// The result of an [`Operation`].
pub enum OperationResult {
    /// The answer to SendMessage.
    Sent(Sent),
    /// The events of SendStreamingMessage or SubscribeToTask.
    Events(EventStream),
    /// The answer to GetTask.
    Task(ShownTask),
    /// The answer to ListTasks.
    Tasks(ListTasksResponse),
    /// The answer to CancelTask.
    CanceledTask(Task),
    /// The answer to CreateTaskPushNotificationConfig or GetTaskPushNotificationConfig.
    PushConfig(TaskPushNotificationConfig),
    /// The answer to ListTaskPushNotificationConfigs.
    PushConfigs(ListTaskPushNotificationConfigsResponse),
    /// The answer to DeleteTaskPushNotificationConfig, which has no content.
    NoPushConfig,
    /// The answer to GetExtendedAgentCard.
    ExtendedAgentCard(Arc<AgentCard>),
    /// The answer of an extension's method.
    Method(MethodResult),
}

impl Operation {
    /// The tenant that the request names.
    pub fn tenant(&self) -> Option<&str> {
        let tenant = match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => &request.tenant,
            Self::GetTask(request) => &request.tenant,
            Self::ListTasks(request) => &request.tenant,
            Self::CancelTask(request) => &request.tenant,
            Self::SubscribeToTask(request) | Self::SubscribeToTurn(request) => &request.tenant,
            Self::CreatePushConfig(config) => &config.tenant,
            Self::GetPushConfig(request) | Self::GetFirstPushConfig(request) => &request.tenant,
            Self::ListPushConfigs(request) => &request.tenant,
            Self::DeletePushConfig(request) => &request.tenant,
            Self::GetExtendedAgentCard(request) => &request.tenant,
            Self::CallMethod(request) => &request.tenant,
        };
        tenant.as_deref()
    }

    /// True if the operation always answers with a stream. False for a method of an extension, which may answer with a
    /// stream or with a single value.
    pub fn streams(&self) -> bool {
        matches!(self, Self::SendStreamingMessage(_) | Self::SubscribeToTask(_) | Self::SubscribeToTurn(_))
    }
}

impl RequestHandler {
    /// Validates the parameters and performs the operation.
    ///
    /// # Errors
    /// The errors that A2A defines for the operation.
    pub fn perform<'a>(
        &'a self,
        call: &'a ServiceParameters,
        operation: Operation,
    ) -> BoxFuture<'a, Result<Answer<OperationResult>, A2aError>> {
        Box::pin(async move {
            let result = match operation {
                Operation::SendMessage(request) => {
                    return Ok(self.send_message(call, request).await?.map(OperationResult::Sent));
                }
                Operation::SendStreamingMessage(request) => {
                    return Ok(self.send_streaming_message(call, request).await?.map(OperationResult::Events));
                }
                Operation::CallMethod(MethodRequest { extension, method, params, .. }) => {
                    let called = self.call_method(call, (extension.as_deref(), &method), &params).await?;
                    return Ok(called.map(OperationResult::Method));
                }
                Operation::GetTask(request) => {
                    return Ok(self.get_task(call, &request).await?.map(OperationResult::Task));
                }
                Operation::ListTasks(request) => {
                    return Ok(self.list_tasks(call, &request).await?.map(OperationResult::Tasks));
                }
                Operation::SubscribeToTask(request) => {
                    return Ok(self.subscribe_to_task(call, &request).await?.map(OperationResult::Events));
                }
                Operation::SubscribeToTurn(request) => {
                    return Ok(self.follow_turn(call, &request).await?.map(OperationResult::Events));
                }
                Operation::CancelTask(request) => {
                    OperationResult::CanceledTask(self.cancel_task(call, &request).await?)
                }
                Operation::CreatePushConfig(config) => {
                    OperationResult::PushConfig(self.create_push_config(call, config).await?)
                }
                Operation::GetPushConfig(request) => {
                    OperationResult::PushConfig(self.get_push_config(call, &request).await?)
                }
                Operation::GetFirstPushConfig(request) => {
                    OperationResult::PushConfig(self.first_push_config(call, &request.task_id).await?)
                }
                Operation::ListPushConfigs(request) => {
                    OperationResult::PushConfigs(self.list_push_configs(call, &request).await?)
                }
                Operation::DeletePushConfig(request) => {
                    self.delete_push_config(call, &request).await?;
                    OperationResult::NoPushConfig
                }
                // With `[auth]` every caller is authenticated, and without it no extended card exists.
                Operation::GetExtendedAgentCard(_) => {
                    return Ok(self.get_extended_agent_card(call).await?.map(OperationResult::ExtendedAgentCard));
                }
            };
            // The other operations activate no extensions (`docs/decisions/server.md`).
            Ok(Answer { value: result, active: Vec::new() })
        })
    }
}
