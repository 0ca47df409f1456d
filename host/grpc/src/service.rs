//! The generated service trait, implemented with [`Operations`]. Each rpc reads the request, calls the operation and
//! writes the response.

use std::pin::Pin;
use std::sync::Arc;

use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageRequest, StreamResponse, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use futures::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::convert::{FieldError, FromProto, IntoProto};
use crate::pb::a2a_service_server::A2aService;
use crate::{CallParameters, EventStream, Operations, Reply, ServiceVersion, parameters, pb, status};

pub(crate) struct A2aAdapter<O> {
    pub(crate) operations: Arc<O>,
}

type ResponseStream = Pin<Box<dyn Stream<Item = Result<pb::StreamResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<O: Operations> A2aService for A2aAdapter<O> {
    type SendStreamingMessageStream = ResponseStream;
    type SubscribeToTaskStream = ResponseStream;

    async fn send_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<pb::SendMessageResponse>, Status> {
        let (parameters, request) = read(request, SendMessageRequest::validate)?;
        write(self.operations.send_message(parameters, request).await)
    }

    async fn send_streaming_message(
        &self,
        request: Request<pb::SendMessageRequest>,
    ) -> Result<Response<ResponseStream>, Status> {
        let (parameters, request) = read(request, SendMessageRequest::validate)?;
        write_events(self.operations.send_streaming_message(parameters, request).await)
    }

    async fn get_task(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(request, GetTaskRequest::validate)?;
        write(self.operations.get_task(parameters, request).await)
    }

    async fn list_tasks(
        &self,
        request: Request<pb::ListTasksRequest>,
    ) -> Result<Response<pb::ListTasksResponse>, Status> {
        let (parameters, request) = read(request, ListTasksRequest::validate)?;
        write(self.operations.list_tasks(parameters, request).await)
    }

    async fn cancel_task(&self, request: Request<pb::CancelTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let (parameters, request) = read(request, CancelTaskRequest::validate)?;
        write(self.operations.cancel_task(parameters, request).await)
    }

    async fn subscribe_to_task(
        &self,
        request: Request<pb::SubscribeToTaskRequest>,
    ) -> Result<Response<ResponseStream>, Status> {
        let (parameters, request) = read(request, SubscribeToTaskRequest::validate)?;
        write_events(self.operations.subscribe_to_task(parameters, request).await)
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<pb::TaskPushNotificationConfig>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        let (parameters, request) = read(request, TaskPushNotificationConfig::validate)?;
        write(self.operations.create_task_push_notification_config(parameters, request).await)
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<pb::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<pb::TaskPushNotificationConfig>, Status> {
        let (parameters, request) = read(request, GetTaskPushNotificationConfigRequest::validate)?;
        write(self.operations.get_task_push_notification_config(parameters, request).await)
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<pb::ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<pb::ListTaskPushNotificationConfigsResponse>, Status> {
        let (parameters, request) = read(request, ListTaskPushNotificationConfigsRequest::validate)?;
        write(self.operations.list_task_push_notification_configs(parameters, request).await)
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<pb::GetExtendedAgentCardRequest>,
    ) -> Result<Response<pb::AgentCard>, Status> {
        let (parameters, request) = read(request, |_: &GetExtendedAgentCardRequest| Ok(()))?;
        write(self.operations.get_extended_agent_card(parameters, request).await)
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<pb::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let (parameters, request) = read(request, DeleteTaskPushNotificationConfigRequest::validate)?;
        write(self.operations.delete_task_push_notification_config(parameters, request).await)
    }
}

fn read<P, T: FromProto<P>>(
    request: Request<P>,
    validate: fn(&T) -> Result<(), A2aError>,
) -> Result<(CallParameters, T), Status> {
    let (metadata, context, message) = request.into_parts();
    // The faults of a request go to the client under the JSON names of its fields, as on the other bindings.
    let invalid = |error: FieldError| A2aError::invalid_field(error.field, error.description);
    let checked = T::from_proto(message).map_err(invalid).and_then(|value| validate(&value).map(|()| value));
    let value = checked.map_err(|error| status::of(&error))?;
    // Version and extensions are not looked at here: all bindings leave that to the operations.
    Ok((parameters::read(ServiceVersion::V1_0, metadata, context), value))
}

fn write<P, T: IntoProto<P>>(result: Result<Reply<T>, A2aError>) -> Result<Response<P>, Status> {
    let written = result.and_then(|reply| Ok((written(reply.value)?, reply.active)));
    let (message, active) = written.map_err(|error| status::of(&error))?;
    let mut response = Response::new(message);
    parameters::write(ServiceVersion::V1_0, &active, response.metadata_mut());
    Ok(response)
}

fn write_events(result: Result<Reply<EventStream>, A2aError>) -> Result<Response<ResponseStream>, Status> {
    let Reply { value, active } = result.map_err(|error| status::of(&error))?;
    // An event that cannot be written ends the stream: a client that missed it would not know.
    let event = |event: Result<StreamResponse, A2aError>| -> Result<pb::StreamResponse, Status> {
        event.and_then(written).map_err(|error| status::of(&error))
    };
    let mut response = Response::new(value.map(event).boxed());
    parameters::write(ServiceVersion::V1_0, &active, response.metadata_mut());
    Ok(response)
}

/// Writes the agent's value. Fails if the value is invalid in A2A, or if protobuf cannot carry it.
pub(crate) fn written<P, T: IntoProto<P>>(value: T) -> Result<P, A2aError> {
    value.into_proto().map_err(|error| match error.to_string() {
        // If protobuf cannot carry the value, the value itself is valid, and the text names the bindings that carry it.
        // All other errors are faults of the agent.
        reason if error.is_not_carried => A2aError::UnsupportedOperation { reason },
        reason => A2aError::InvalidAgentResponse { reason },
    })
}
