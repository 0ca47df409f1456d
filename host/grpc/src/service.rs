//! The generated service trait, implemented with [`Operations`]. Each rpc reads the request, calls the operation and
//! writes the response.

use std::sync::Arc;

use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use tonic::{Request, Response, Status};

use crate::exchange::{ResponseStream, read, write, write_events};
use crate::pb::a2a_service_server::A2aService;
use crate::{Operations, ServiceVersion, pb};

pub(crate) struct A2aAdapter<O> {
    pub(crate) operations: Arc<O>,
}

type Events = ResponseStream<pb::StreamResponse>;

const VERSION: ServiceVersion = ServiceVersion::V1_0;

#[tonic::async_trait]
impl<O: Operations> A2aService for A2aAdapter<O> {
    type SendStreamingMessageStream = Events;
    type SubscribeToTaskStream = Events;

    async fn send_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<pb::SendMessageResponse>, Status> {
        let (parameters, request) = read(VERSION, request, SendMessageRequest::validate)?;
        write(VERSION, self.operations.send_message(parameters, request).await)
    }

    async fn send_streaming_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<Events>, Status> {
        let (parameters, request) = read(VERSION, request, SendMessageRequest::validate)?;
        write_events(VERSION, self.operations.send_streaming_message(parameters, request).await)
    }

    async fn get_task(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(VERSION, request, GetTaskRequest::validate)?;
        write(VERSION, self.operations.get_task(parameters, request).await)
    }

    async fn list_tasks(
        &self,
        request: Request<pb::ListTasksRequest>,
    ) -> Result<Response<pb::ListTasksResponse>, Status> {
        let (parameters, request) = read(VERSION, request, ListTasksRequest::validate)?;
        write(VERSION, self.operations.list_tasks(parameters, request).await)
    }

    async fn cancel_task(&self, request: Request<pb::CancelTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(VERSION, request, CancelTaskRequest::validate)?;
        write(VERSION, self.operations.cancel_task(parameters, request).await)
    }

    async fn subscribe_to_task(
        &self,
        request: Request<pb::SubscribeToTaskRequest>,
    ) -> Result<Response<Events>, Status> {
        let (parameters, request) = read(VERSION, request, SubscribeToTaskRequest::validate)?;
        write_events(VERSION, self.operations.subscribe_to_task(parameters, request).await)
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<pb::TaskPushNotificationConfig>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        let (parameters, request) = read(VERSION, request, TaskPushNotificationConfig::validate)?;
        write(VERSION, self.operations.create_task_push_notification_config(parameters, request).await)
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<pb::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        let (parameters, request) = read(VERSION, request, GetTaskPushNotificationConfigRequest::validate)?;
        write(VERSION, self.operations.get_task_push_notification_config(parameters, request).await)
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<pb::ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<pb::ListTaskPushNotificationConfigsResponse>, Status> {
        let (parameters, request) = read(VERSION, request, ListTaskPushNotificationConfigsRequest::validate)?;
        write(VERSION, self.operations.list_task_push_notification_configs(parameters, request).await)
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<pb::GetExtendedAgentCardRequest>,
    ) -> Result<Response<pb::AgentCard>, Status> {
        let (parameters, request) = read(VERSION, request, |_: &GetExtendedAgentCardRequest| Ok(()))?;
        write(VERSION, self.operations.get_extended_agent_card(parameters, request).await)
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<pb::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let (parameters, request) = read(VERSION, request, DeleteTaskPushNotificationConfigRequest::validate)?;
        write(VERSION, self.operations.delete_task_push_notification_config(parameters, request).await)
    }
}
