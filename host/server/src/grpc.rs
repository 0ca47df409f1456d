//! The operations as the gRPC binding calls them (A2A 1.0 section 10). The translation is in `annex-grpc`.

use std::sync::Arc;

use annex_grpc::{CallParameters, EventStream, MethodReply, Operations, Reply};
use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use annex_tasks::Owner;
use async_trait::async_trait;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request};
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;

use crate::answer::{self, Answer, Sent};
use crate::call::Call;
use crate::front::{Front, Phase};
use crate::handler::RequestHandler;
use crate::methods::MethodResult;

/// The handler behind the front, which decides whether it may be called.
pub(crate) struct GrpcOperations(pub(crate) Arc<Front>);

/// Says who calls before tonic reads anything, and ends a body that takes too long.
pub(crate) async fn admit(State(front): State<Arc<Front>>, request: Request<Body>, next: Next) -> Response {
    let deadline = tokio::time::sleep(front.body_patience);
    let mut request = request.map(|body| Body::from_stream(body.into_data_stream().take_until(deadline)));
    if annex_grpc::is_operation(request.uri().path()) {
        let (owner, headers) = match front.admit(request.headers()).await {
            Ok((handler, owner)) => (owner, handler.headers_of(request.headers())),
            Err(error) => return annex_grpc::refuse(&error),
        };
        request.extensions_mut().insert(owner);
        if let Some(headers) = headers {
            request.extensions_mut().insert(headers);
        }
    }
    next.run(request).await
}

impl GrpcOperations {
    fn admit(&self, parameters: CallParameters) -> Result<(&RequestHandler, Call), A2aError> {
        let handler = self.0.handler()?;
        // The layer above puts it there; a call that came by without is nobody's.
        let nobody = || A2aError::Unauthenticated {
            reason: "the caller was not identified".to_owned(),
            challenge: String::new(),
        };
        let owner = parameters.context.get::<Owner>().cloned().ok_or_else(nobody)?;
        let headers = parameters.context.get::<Arc<HeaderMap>>().cloned();
        let call = Call::new(owner, parameters.version.unwrap_or_default(), parameters.extensions)?;
        let call = call.with_headers(headers);
        Ok((handler, call))
    }
}

fn reply<T>(value: T) -> Reply<T> {
    Reply { value, active: Vec::new() }
}

fn events(events: answer::EventStream) -> EventStream {
    Box::pin(events.map(|event| Ok(event.event().clone())))
}

#[async_trait]
impl Operations for GrpcOperations {
    async fn send_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<Reply<SendMessageResponse>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        let Answer { value, active } = handler.send_message(&call, request).await?;
        let value = match value {
            Sent::Message(message) => SendMessageResponse::Message(*message),
            Sent::Task(task) => SendMessageResponse::Task(task.into_task()?),
        };
        Ok(Reply { value, active })
    }

    async fn send_streaming_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<Reply<EventStream>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        let Answer { value, active } = handler.send_streaming_message(&call, request).await?;
        Ok(Reply { value: events(value), active })
    }

    async fn get_task(&self, parameters: CallParameters, request: GetTaskRequest) -> Result<Reply<Task>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.get_task(&call, &request).await?.into_task()?))
    }

    async fn list_tasks(
        &self,
        parameters: CallParameters,
        request: ListTasksRequest,
    ) -> Result<Reply<ListTasksResponse>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.list_tasks(&call, &request).await?))
    }

    async fn cancel_task(
        &self,
        parameters: CallParameters,
        request: CancelTaskRequest,
    ) -> Result<Reply<Task>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.cancel_task(&call, &request).await?))
    }

    async fn subscribe_to_task(
        &self,
        parameters: CallParameters,
        request: SubscribeToTaskRequest,
    ) -> Result<Reply<EventStream>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(events(handler.subscribe_to_task(&call, &request).await?)))
    }

    async fn create_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: TaskPushNotificationConfig,
    ) -> Result<Reply<TaskPushNotificationConfig>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.create_push_config(&call, request).await?))
    }

    async fn get_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Reply<TaskPushNotificationConfig>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.get_push_config(&call, &request).await?))
    }

    async fn list_task_push_notification_configs(
        &self,
        parameters: CallParameters,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Reply<ListTaskPushNotificationConfigsResponse>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.list_push_configs(&call, &request).await?))
    }

    async fn delete_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Reply<()>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(handler.delete_push_config(&call, &request).await?))
    }

    async fn get_extended_agent_card(
        &self,
        parameters: CallParameters,
        request: GetExtendedAgentCardRequest,
    ) -> Result<Reply<AgentCard>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(Arc::unwrap_or_clone(handler.get_extended_agent_card(&call, &request)?)))
    }

    async fn call_method(
        &self,
        parameters: CallParameters,
        method: String,
        params: Json,
    ) -> Result<Reply<MethodReply>, A2aError> {
        let (handler, call) = self.admit(parameters)?;
        let (tenant, params) = handler.tenant_in(&params)?;
        let called = handler.call_method(&call, tenant.as_deref(), (None, &method), &params).await?;
        let Answer { value, active } = called;
        let value = match value {
            MethodResult::Value(value) => MethodReply::Value(value),
            MethodResult::Results(results) => MethodReply::Results(results),
        };
        Ok(Reply { value, active })
    }

    fn is_serving(&self) -> bool {
        self.0.phase() == Phase::Ready
    }
}
