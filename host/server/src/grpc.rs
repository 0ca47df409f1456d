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
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Request};
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;
use http_body_util::BodyExt;

use crate::answer::{self, Answer, Sent};
use crate::answer_body::AnswerBody;
use crate::call::Call;
use crate::caller::{Caller, Network};
use crate::front::{Front, Phase};
use crate::handler::RequestHandler;
use crate::methods::MethodResult;
use crate::request_body::{BodyError, RequestBody};
use crate::streams::StreamPlace;

/// The handler behind the front, which decides whether it may be called.
pub(crate) struct GrpcOperations(pub(crate) Arc<Front>);

/// Says who calls before tonic reads anything, and bounds what it reads and what it makes.
pub(crate) async fn admit(
    State(front): State<Arc<Front>>,
    Extension(network): Extension<Network>,
    request: Request<Body>,
    next: Next,
) -> Response {
    if !annex_grpc::is_operation(request.uri().path()) {
        let caller = Caller::new(Owner::default(), network, &front.shares);
        return next.run(bounded(&front, caller, request)).await;
    }
    let (owner, headers) = match front.admit(request.headers()).await {
        Ok((handler, owner)) => (owner, handler.headers_of(request.headers())),
        Err(error) => return annex_grpc::refuse(&error),
    };
    let caller = Caller::new(owner, network, &front.shares);
    let mut request = bounded(&front, caller.clone(), request);
    request.extensions_mut().insert(caller.clone());
    if let Some(headers) = headers {
        request.extensions_mut().insert(headers);
    }
    let (head, body) = next.run(request).await.into_parts();
    match AnswerBody::begun(caller, body) {
        Ok(body) => Response::from_parts(head, Body::new(body)),
        Err(error) => annex_grpc::refuse(&error),
    }
}

/// The request with a body that ends in time and counts for its caller.
fn bounded(front: &Front, caller: Caller, request: Request<Body>) -> Request<Body> {
    let told = |error: BodyError| annex_grpc::unread_body(&error.told().1);
    let patience = front.body_patience;
    request.map(|body| Body::new(RequestBody::new(caller, body, patience).map_err(told)))
}

impl GrpcOperations {
    fn admit(&self, parameters: CallParameters) -> Result<(&RequestHandler, Call), A2aError> {
        let handler = self.0.handler()?;
        let caller = caller(&parameters)?.owner.clone();
        let headers = parameters.context.get::<Arc<HeaderMap>>().cloned();
        let call = Call::new(caller, parameters.version.unwrap_or_default(), parameters.extensions)?;
        let call = call.with_headers(headers);
        Ok((handler, call))
    }
}

/// The layer above puts it there; a call that came by without is nobody's.
fn caller(parameters: &CallParameters) -> Result<&Caller, A2aError> {
    parameters.context.get::<Caller>().ok_or_else(|| A2aError::Unauthenticated {
        reason: "the caller was not identified".to_owned(),
        challenge: String::new(),
    })
}

fn reply<T>(value: T) -> Reply<T> {
    Reply { value, active: Vec::new() }
}

/// The events, with the place of their stream until it is over.
fn events(place: StreamPlace, events: answer::EventStream) -> EventStream {
    Box::pin(place.during(events.map(|event| Ok(event.event().clone()))))
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
        let place = caller(&parameters)?.open_stream()?;
        let (handler, call) = self.admit(parameters)?;
        let Answer { value, active } = handler.send_streaming_message(&call, request).await?;
        Ok(Reply { value: events(place, value), active })
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
        let place = caller(&parameters)?.open_stream()?;
        let (handler, call) = self.admit(parameters)?;
        Ok(reply(events(place, handler.subscribe_to_task(&call, &request).await?)))
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
        let caller = caller(&parameters)?.clone();
        let (handler, call) = self.admit(parameters)?;
        let (tenant, params) = handler.tenant_in(&params)?;
        let called = handler.call_method(&call, tenant.as_deref(), (None, &method), &params).await?;
        let Answer { value, active } = called;
        let value = match value {
            MethodResult::Value(value) => MethodReply::Value(value),
            MethodResult::Results(results) => MethodReply::Results(Box::pin(caller.open_stream()?.during(results))),
        };
        Ok(Reply { value, active })
    }

    fn is_serving(&self) -> bool {
        self.0.phase() == Phase::Ready
    }
}
