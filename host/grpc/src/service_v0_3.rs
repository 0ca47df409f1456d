//! The generated service trait of A2A 0.3, implemented with [`Operations`]. Each rpc ends in the operation of 1.0.

use std::pin::Pin;
use std::sync::Arc;

use annex_protocol::v0_3::rest;
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, SendMessageRequest,
    StreamResponse, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use futures::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::convert::{FieldError, FromProto, IntoProto};
use crate::pb::v0_3 as pb;
use crate::pb::v0_3::a2a_service_server::A2aService;
use crate::service::written;
use crate::{CallParameters, EventStream, Operations, Reply, ServiceVersion, parameters, status};

pub(crate) struct OlderAdapter<O> {
    pub(crate) operations: Arc<O>,
}

type ResponseStream = Pin<Box<dyn Stream<Item = Result<pb::StreamResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<O: Operations> A2aService for OlderAdapter<O> {
    type SendStreamingMessageStream = ResponseStream;
    type TaskSubscriptionStream = ResponseStream;

    async fn send_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<pb::SendMessageResponse>, Status> {
        let (parameters, request) = read(request, validate_message)?;
        let result = self.operations.send_message(parameters, request).await;
        write(result.map_err(rest::refusal_of_message))
    }

    async fn send_streaming_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<ResponseStream>, Status> {
        let (parameters, request) = read(request, validate_message)?;
        let result = self.operations.send_streaming_message(parameters, request).await;
        write_events(result.map_err(rest::refusal_of_message))
    }

    async fn get_task(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(request, GetTaskRequest::validate)?;
        write(self.operations.get_task(parameters, request).await)
    }

    async fn cancel_task(&self, request: Request<pb::CancelTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(request, CancelTaskRequest::validate)?;
        write(self.operations.cancel_task(parameters, request).await)
    }

    async fn task_subscription(
        &self,
        request: Request<pb::TaskSubscriptionRequest>,
    ) -> Result<Response<ResponseStream>, Status> {
        let (parameters, request) = read(request, SubscribeToTaskRequest::validate)?;
        write_events(self.operations.subscribe_to_task(parameters, request).await)
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<pb::CreateTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        let (parameters, request) = read(request, validate_push_config)?;
        let result = self.operations.create_task_push_notification_config(parameters, request).await;
        write(result.map_err(rest::refusal_of_nested_push_config))
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<pb::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        // The name has been read, so the task is present. An empty id of the config asks for the first config.
        let (parameters, request) = read(request, |_: &GetTaskPushNotificationConfigRequest| Ok(()))?;
        write(self.operations.get_task_push_notification_config(parameters, request).await)
    }

    async fn list_task_push_notification_config(
        &self,
        request: Request<pb::ListTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::ListTaskPushNotificationConfigResponse>, Status> {
        let (parameters, request) = read(request, ListTaskPushNotificationConfigsRequest::validate)?;
        write(self.operations.list_task_push_notification_configs(parameters, request).await)
    }

    async fn get_agent_card(
        &self,
        request: Request<pb::GetAgentCardRequest>,
    ) -> Result<Response<pb::AgentCard>, Status> {
        let (parameters, request) = read(request, |_: &GetExtendedAgentCardRequest| Ok(()))?;
        write(self.operations.get_extended_agent_card(parameters, request).await)
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<pb::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let (parameters, request) = read(request, validate_deletion)?;
        write(self.operations.delete_task_push_notification_config(parameters, request).await)
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

fn read<P, T: FromProto<P>>(
    request: Request<P>,
    validate: fn(&T) -> Result<(), A2aError>,
) -> Result<(CallParameters, T), Status> {
    let (metadata, context, message) = request.into_parts();
    let invalid = |error: FieldError| A2aError::invalid_field(error.field, error.description);
    let checked = T::from_proto(message).map_err(invalid).and_then(|value| validate(&value).map(|()| value));
    let value = checked.map_err(|error| status::of_v0_3(&error))?;
    Ok((parameters::read(ServiceVersion::V0_3, metadata, context), value))
}

fn write<P, T: IntoProto<P>>(result: Result<Reply<T>, A2aError>) -> Result<Response<P>, Status> {
    let written = result.and_then(|reply| Ok((written(reply.value)?, reply.active)));
    let (message, active) = written.map_err(|error| status::of_v0_3(&error))?;
    let mut response = Response::new(message);
    parameters::write(ServiceVersion::V0_3, &active, response.metadata_mut());
    Ok(response)
}

fn write_events(result: Result<Reply<EventStream>, A2aError>) -> Result<Response<ResponseStream>, Status> {
    let Reply { value, active } = result.map_err(|error| status::of_v0_3(&error))?;
    // An event that cannot be written ends the stream: a client that missed it would not know.
    let event = |event: Result<StreamResponse, A2aError>| -> Result<pb::StreamResponse, Status> {
        event.and_then(written).map_err(|error| status::of_v0_3(&error))
    };
    let mut response = Response::new(value.map(event).boxed());
    parameters::write(ServiceVersion::V0_3, &active, response.metadata_mut());
    Ok(response)
}
