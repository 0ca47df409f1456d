//! The operations as the gRPC binding calls them (A2A 1.0 section 10). The translation is in `annex-grpc`.

use std::sync::Arc;

use annex_grpc::{CallParameters, EventStream, MethodReply, Operations, Reply};
use annex_operations::answer::{self, Answer, Sent};
use annex_operations::methods::MethodResult;
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::{Identity, ServiceParameters};
use annex_operations::tasks::log::LoggedEvent;
use annex_protocol::service::VERSION;
use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;
use http_body_util::BodyExt;

use crate::access_log;
use crate::bindings::answer_body::AnswerBody;
use crate::connections::caller::Caller;
use crate::connections::network::Network;
use crate::connections::request_body::{BodyError, RequestBody};
use crate::connections::streams::StreamPlace;
use crate::process::readiness_gate::{Phase, ReadinessGate};

/// The handler behind the gate, which decides whether it may be called.
pub(crate) struct GrpcOperations(pub(crate) Arc<ReadinessGate>);

/// Says who calls before tonic reads anything, and bounds what it reads and what it makes.
pub(crate) async fn admit(
    State(gate): State<Arc<ReadinessGate>>,
    Extension(network): Extension<Network>,
    request: Request<Body>,
    next: Next,
) -> Response {
    if !annex_grpc::is_operation(request.uri().path()) {
        // Health and reflection need no credentials. Their bodies are bounded all the same.
        access_log::asks_for(access_log::HEALTH);
        let caller = Caller::new(Identity::default(), network, &gate.limits.shares);
        return next.run(bounded(&gate, caller, request)).await;
    }
    access_log::came_by(access_log::GRPC);
    access_log::asks_for_named(request.uri().path().rsplit('/').next().unwrap_or_default());
    let identity = match access_log::noted(gate.admit(request.headers())).await {
        Ok((_, identity)) => identity,
        Err(error) => return annex_grpc::refuse(&error),
    };
    let caller = Caller::new(identity, network, &gate.limits.shares);
    let mut request = bounded(&gate, caller.clone(), request);
    // The operation finds them in the context of its call.
    request.extensions_mut().insert(caller.clone());
    let (head, body) = annex_grpc::with_details(next.run(request).await).into_parts();
    match AnswerBody::begun(caller, body) {
        Ok(body) => {
            // What the binding refuses by itself, such as a message that is none, has a status and no error of A2A.
            if head.headers.get("grpc-status").is_some_and(|status| status != "0") {
                access_log::refused("invalid_request");
            }
            Response::from_parts(head, Body::new(body))
        }
        Err(error) => {
            access_log::note_error(&error);
            annex_grpc::refuse(&error)
        }
    }
}

/// The request with a body that ends in time and counts for its caller.
fn bounded(gate: &ReadinessGate, caller: Caller, request: Request<Body>) -> Request<Body> {
    let told = |error: BodyError| annex_grpc::unread_body(&error.told().1);
    let timeout = gate.limits.body_timeout();
    request.map(|body| Body::new(RequestBody::new(caller, body, timeout).map_err(told)))
}

impl GrpcOperations {
    /// The handler of the tenant that a call names, and the parameters of the call there.
    async fn serving(
        &self,
        parameters: CallParameters,
        tenant: Option<&str>,
    ) -> Result<(Arc<RequestHandler>, ServiceParameters), A2aError> {
        let identity = caller(&parameters)?.identity.clone();
        // A call without a version is one of 0.3 (A2A 1.0 section 3.6.2), which is not served over gRPC and is refused
        // here.
        let call =
            ServiceParameters::new(identity, parameters.version.as_deref().unwrap_or_default(), parameters.extensions)?;
        access_log::speaks(VERSION);
        self.0.app()?.tenants().asked_with(&parameters.headers).serving(call, tenant).await
    }
}

/// The caller, which the layer above puts there. A call without one is refused as unauthenticated.
fn caller(parameters: &CallParameters) -> Result<&Caller, A2aError> {
    parameters.context.get::<Caller>().ok_or_else(|| A2aError::Unauthenticated {
        reason: "the caller was not identified".to_owned(),
        challenge: String::new(),
    })
}

fn reply<T>(value: T) -> Reply<T> {
    // Operations that carry no message activate nothing and echo nothing (`docs/decisions/server.md`).
    Reply { value, active: Vec::new() }
}

/// The events, with the place of their stream until it is over.
fn events(place: StreamPlace, events: answer::EventStream) -> EventStream {
    let event = |event: Result<Arc<LoggedEvent>, A2aError>| event.map(|event| event.event().clone());
    Box::pin(place.during(events.map(move |logged| event(logged.inspect_err(access_log::note_error)))))
}

#[async_trait]
impl Operations for GrpcOperations {
    async fn send_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<Reply<SendMessageResponse>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            let Answer { value, active } = handler.send_message(&call, request).await?;
            let value = match value {
                Sent::Message(message) => SendMessageResponse::Message(*message),
                Sent::Task(task) => SendMessageResponse::Task(task.into_task()?),
            };
            Ok(Reply { value, active })
        })
        .await
    }

    async fn send_streaming_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<Reply<EventStream>, A2aError> {
        access_log::noted(async {
            // The place comes first: a client that gets no stream must not have begun a turn.
            let place = caller(&parameters)?.open_stream()?;
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            let Answer { value, active } = handler.send_streaming_message(&call, request).await?;
            Ok(Reply { value: events(place, value), active })
        })
        .await
    }

    async fn get_task(&self, parameters: CallParameters, request: GetTaskRequest) -> Result<Reply<Task>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.get_task(&call, &request).await?.into_task()?))
        })
        .await
    }

    async fn list_tasks(
        &self,
        parameters: CallParameters,
        request: ListTasksRequest,
    ) -> Result<Reply<ListTasksResponse>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.list_tasks(&call, &request).await?))
        })
        .await
    }

    async fn cancel_task(
        &self,
        parameters: CallParameters,
        request: CancelTaskRequest,
    ) -> Result<Reply<Task>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.cancel_task(&call, &request).await?))
        })
        .await
    }

    async fn subscribe_to_task(
        &self,
        parameters: CallParameters,
        request: SubscribeToTaskRequest,
    ) -> Result<Reply<EventStream>, A2aError> {
        access_log::noted(async {
            let place = caller(&parameters)?.open_stream()?;
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(events(place, handler.subscribe_to_task(&call, &request).await?)))
        })
        .await
    }

    async fn create_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: TaskPushNotificationConfig,
    ) -> Result<Reply<TaskPushNotificationConfig>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.create_push_config(&call, request).await?))
        })
        .await
    }

    async fn get_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Reply<TaskPushNotificationConfig>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.get_push_config(&call, &request).await?))
        })
        .await
    }

    async fn list_task_push_notification_configs(
        &self,
        parameters: CallParameters,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Reply<ListTaskPushNotificationConfigsResponse>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.list_push_configs(&call, &request).await?))
        })
        .await
    }

    async fn delete_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Reply<()>, A2aError> {
        access_log::noted(async {
            let (handler, call) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(handler.delete_push_config(&call, &request).await?))
        })
        .await
    }

    async fn get_extended_agent_card(
        &self,
        parameters: CallParameters,
        request: GetExtendedAgentCardRequest,
    ) -> Result<Reply<AgentCard>, A2aError> {
        access_log::noted(async {
            let (handler, _) = self.serving(parameters, request.tenant.as_deref()).await?;
            Ok(reply(Arc::unwrap_or_clone(handler.get_extended_agent_card()?)))
        })
        .await
    }

    async fn call_method(
        &self,
        parameters: CallParameters,
        method: String,
        params: Json,
    ) -> Result<Reply<MethodReply>, A2aError> {
        access_log::noted(async {
            // The caller is cloned, because `serving` consumes the parameters before it is known whether a stream is
            // opened.
            let caller = caller(&parameters)?.clone();
            // A method of an extension has no request type with a field for the tenant, so its parameters name it.
            let (tenant, params) = self.0.app()?.tenants().tenant_in(&params)?;
            let (handler, call) = self.serving(parameters, tenant.as_deref()).await?;
            let called = handler.call_method(&call, (None, &method), &params).await?;
            let Answer { value, active } = called;
            let value = match value {
                MethodResult::Value(value) => MethodReply::Value(value),
                // Only the answer tells whether the method streams, so its place is taken after the call.
                MethodResult::Results(results) => {
                    let results = results.map(|result| result.inspect_err(access_log::note_error));
                    MethodReply::Results(Box::pin(caller.open_stream()?.during(results)))
                }
            };
            Ok(Reply { value, active })
        })
        .await
    }

    fn is_serving(&self) -> bool {
        self.0.phase() == Phase::Ready
    }
}
