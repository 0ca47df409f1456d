//! The generated service trait of A2A 0.3, implemented with [`Operations`]. Each rpc ends in the operation of 1.0.

use std::sync::Arc;

use annex_protocol::v0_3::rest;
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, SendMessageRequest,
    SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use tonic::{Request, Response, Status};

use crate::exchange::{ResponseStream, read, write, write_events};
use crate::pb::v0_3 as pb;
use crate::pb::v0_3::a2a_service_server::A2aService;
use crate::{Operations, ServiceVersion};

pub(crate) struct OlderAdapter<O> {
    pub(crate) operations: Arc<O>,
}

type Events = ResponseStream<pb::StreamResponse>;

const VERSION: ServiceVersion = ServiceVersion::V0_3;

#[tonic::async_trait]
impl<O: Operations> A2aService for OlderAdapter<O> {
    type SendStreamingMessageStream = Events;
    type TaskSubscriptionStream = Events;

    async fn send_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<pb::SendMessageResponse>, Status> {
        let (parameters, request) = read(VERSION, request, validate_message)?;
        let result = self.operations.send_message(parameters, request).await;
        write(VERSION, result.map_err(rest::refusal_of_message))
    }

    async fn send_streaming_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<Events>, Status> {
        let (parameters, request) = read(VERSION, request, validate_message)?;
        let result = self.operations.send_streaming_message(parameters, request).await;
        write_events(VERSION, result.map_err(rest::refusal_of_message))
    }

    async fn get_task(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(VERSION, request, GetTaskRequest::validate)?;
        write(VERSION, self.operations.get_task(parameters, request).await)
    }

    async fn cancel_task(&self, request: Request<pb::CancelTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(VERSION, request, CancelTaskRequest::validate)?;
        write(VERSION, self.operations.cancel_task(parameters, request).await)
    }

    async fn task_subscription(
        &self,
        request: Request<pb::TaskSubscriptionRequest>,
    ) -> Result<Response<Events>, Status> {
        let (parameters, request) = read(VERSION, request, SubscribeToTaskRequest::validate)?;
        write_events(VERSION, self.operations.subscribe_to_task(parameters, request).await)
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<pb::CreateTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        let (parameters, request) = read(VERSION, request, validate_push_config)?;
        let result = self.operations.create_task_push_notification_config(parameters, request).await;
        write(VERSION, result.map_err(rest::refusal_of_nested_push_config))
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<pb::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        // The name has been read, so the task is present. An empty id of the config asks for the first config.
        let (parameters, request) = read(VERSION, request, |_: &GetTaskPushNotificationConfigRequest| Ok(()))?;
        write(VERSION, self.operations.get_task_push_notification_config(parameters, request).await)
    }

    async fn list_task_push_notification_config(
        &self,
        request: Request<pb::ListTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::ListTaskPushNotificationConfigResponse>, Status> {
        let (parameters, request) = read(VERSION, request, ListTaskPushNotificationConfigsRequest::validate)?;
        write(VERSION, self.operations.list_task_push_notification_configs(parameters, request).await)
    }

    async fn get_agent_card(
        &self,
        request: Request<pb::GetAgentCardRequest>,
    ) -> Result<Response<pb::AgentCard>, Status> {
        let (parameters, request) = read(VERSION, request, |_: &GetExtendedAgentCardRequest| Ok(()))?;
        write(VERSION, self.operations.get_extended_agent_card(parameters, request).await)
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<pb::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let (parameters, request) = read(VERSION, request, validate_deletion)?;
        write(VERSION, self.operations.delete_task_push_notification_config(parameters, request).await)
    }
}

/// Validates by the rules of 1.0. The fields in errors have their names of 0.3.
fn validate_message(request: &SendMessageRequest) -> Result<(), A2aError> {
    request.validate().map_err(rest::refusal_of_message)
}

fn validate_push_config(config: &TaskPushNotificationConfig) -> Result<(), A2aError> {
    config.validate().map_err(rest::refusal_of_nested_push_config)
}

fn validate_deletion(request: &DeleteTaskPushNotificationConfigRequest) -> Result<(), A2aError> {
    // Only the id of the config can be missing: the task has been read from the same name.
    request.validate().map_err(|_| A2aError::invalid_field("name", "names no push notification config"))
}
