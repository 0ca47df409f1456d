//! The operations as the gRPC binding calls them (A2A 1.0 section 10), for the services of 1.0 and of 0.3. The translation
//! is in `annex-grpc`.

use std::mem;
use std::sync::Arc;

use annex_grpc::{CallParameters, EventStream, MethodReply, ServiceVersion};
use annex_operations::answer::Sent;
use annex_operations::fault;
use annex_operations::methods::MethodResult;
use annex_operations::operation::{Operation, OperationResult};
use annex_operations::service_parameters::{Identity, ServiceParameters};
use annex_operations::tasks::log::LoggedEvent;
use annex_protocol::service::{VERSION, is_version};
use annex_protocol::v0_3;
use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{Extensions, HeaderMap, Request};
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;
use http_body_util::BodyExt;

use crate::access_log;
use crate::app::App;
use crate::bindings::answer_body::AnswerBody;
use crate::bindings::v0_3::{requested_extensions, service_parameters};
use crate::connections::caller::Caller;
use crate::connections::peer::Peer;
use crate::connections::request_body::{BodyError, RequestBody};
use crate::connections::streams;
use crate::operations::{Operations, Reply};
use crate::process::readiness_gate::{Phase, ReadinessGate};

/// The gRPC service. Until the server is ready, the gate refuses its calls.
pub(crate) struct GrpcOperations(pub(crate) Arc<ReadinessGate>);

/// Authenticates the caller before tonic reads the request, and bounds the bodies of request and answer.
pub(crate) async fn admit(
    State(gate): State<Arc<ReadinessGate>>,
    Extension(peer): Extension<Peer>,
    request: Request<Body>,
    next: Next,
) -> Response {
    if !annex_grpc::is_operation(request.uri().path()) {
        // Health and reflection need no credentials. Their bodies are still bounded.
        access_log::asks_for(access_log::HEALTH);
        let caller = Caller::new(Identity::default(), peer.network, &gate.limits.shares);
        return next.run(bounded(&gate, caller, request)).await;
    }
    access_log::came_by(access_log::GRPC);
    if let Some(method) = annex_grpc::operation(request.uri().path()) {
        access_log::asks_for(method.name());
    }
    let identity = match access_log::noted(gate.admit(request.headers(), &peer)).await {
        Ok((_, identity)) => identity,
        Err(error) => return annex_grpc::refuse(&error),
    };
    let caller = Caller::new(identity, peer.network, &gate.limits.shares);
    let mut request = bounded(&gate, caller.clone(), request);
    // The operation reads the caller and the headers from the request's extensions.
    request.extensions_mut().insert(caller.clone());
    let (head, body) = annex_grpc::with_details(next.run(request).await).into_parts();
    match AnswerBody::begun(caller, body) {
        Ok(body) => {
            // A refusal by tonic itself, such as for a malformed message, has a gRPC status and no A2A error.
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

/// Gives the request's body a time limit, and counts the body against its caller's share.
fn bounded(gate: &ReadinessGate, caller: Caller, request: Request<Body>) -> Request<Body> {
    let told = |error: BodyError| annex_grpc::unread_body(&error.told().1);
    let timeout = gate.limits.body_timeout();
    request.map(|body| Body::new(RequestBody::new(caller, body, timeout).map_err(told)))
}

impl GrpcOperations {
    fn operations<'a>(&'a self, headers: &'a HeaderMap) -> Result<Operations<'a>, A2aError> {
        Ok(Operations::new(self.0.app()?.tenants(), headers))
    }

    /// Performs an operation. `value` extracts the RPC's return value from the reply.
    async fn call<T>(
        &self,
        parameters: CallParameters,
        operation: Operation,
        value: fn(Reply) -> Result<T, A2aError>,
    ) -> Result<annex_grpc::Reply<T>, A2aError> {
        // Boxed, because the future holds those of all operations.
        Box::pin(access_log::noted(async {
            let (caller, call) = read_call(&parameters)?;
            let mut reply = self.operations(&parameters.headers)?.call(caller, call, operation).await?;
            let active = mem::take(&mut reply.active);
            Ok(annex_grpc::Reply { value: value(reply)?, active })
        }))
        .await
    }

    /// The card for an authenticated caller of 0.3. A client of 0.3 requests the extended card even if the agent has none, and
    /// then gets the public card.
    async fn card_of_0_3(&self, parameters: CallParameters) -> Result<annex_grpc::Reply<AgentCard>, A2aError> {
        Box::pin(access_log::noted(async {
            let (caller, call) = read_call(&parameters)?;
            let operation = Operation::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
            match self.operations(&parameters.headers)?.call(caller, call, operation).await {
                Ok(mut reply) => {
                    let active = mem::take(&mut reply.active);
                    Ok(annex_grpc::Reply { value: extended_card(reply)?, active })
                }
                Err(_) => Ok(annex_grpc::Reply { value: public_card(self.0.app()?)?, active: Vec::new() }),
            }
        }))
        .await
    }
}

/// The caller and the service parameters of a call. A call of the service of 1.0 must name the version, because a call without
/// a version is one of 0.3 (A2A 1.0 section 3.6.2).
fn read_call(parameters: &CallParameters) -> Result<(&Caller, ServiceParameters), A2aError> {
    let CallParameters { service, version, extensions, context, .. } = parameters;
    let caller = caller(context)?;
    let identity = caller.identity.clone();
    let version = version.as_deref().unwrap_or_default();
    let call = match service {
        ServiceVersion::V1_0 => ServiceParameters::new(identity, version, extensions.clone())?,
        ServiceVersion::V0_3 => service_parameters(identity, version, extensions.clone())?,
    };
    access_log::speaks(match service {
        ServiceVersion::V1_0 => VERSION,
        ServiceVersion::V0_3 => v0_3::VERSION,
    });
    Ok((caller, call))
}

/// The parameters of a call of an extension's method. Both versions share the service for methods. As on the other bindings, a
/// call that names no version is one of 0.3.
fn of_either_version(mut parameters: CallParameters) -> CallParameters {
    let version = parameters.version.as_deref().unwrap_or_default();
    if version.is_empty() || is_version(version, v0_3::VERSION) {
        parameters.extensions = requested_extensions(&parameters.headers);
        parameters.service = ServiceVersion::V0_3;
    }
    parameters
}

/// The public card of the config's own agent.
fn public_card(app: &App) -> Result<AgentCard, A2aError> {
    let published = app.installer().publisher().current();
    published.card.decoded().map_err(|error| fault::internal(&error))
}

/// The caller that [`admit`] has stored. A call without a caller is refused as unauthenticated.
fn caller(context: &Extensions) -> Result<&Caller, A2aError> {
    context.get::<Caller>().ok_or_else(|| A2aError::Unauthenticated {
        reason: "the caller was not identified".to_owned(),
        challenge: String::new(),
    })
}

/// The error if an operation returns the result of another operation. Only a bug in this file causes it.
#[derive(Debug, thiserror::Error)]
#[error("the result is not one of this operation")]
struct OtherResult;

fn other_result() -> A2aError {
    fault::internal(&OtherResult)
}

fn sent(reply: Reply) -> Result<SendMessageResponse, A2aError> {
    match reply.result {
        OperationResult::Sent(Sent::Message(message)) => Ok(SendMessageResponse::Message(*message)),
        OperationResult::Sent(Sent::Task(task)) => Ok(SendMessageResponse::Task(task.into_task()?)),
        _ => Err(other_result()),
    }
}

/// Takes the events of a stream out of the reply. The returned stream holds its place in the caller's limit until the
/// stream ends.
fn events(reply: Reply) -> Result<EventStream, A2aError> {
    let OperationResult::Events(events) = reply.result else { return Err(other_result()) };
    let event = |event: Result<Arc<LoggedEvent>, A2aError>| event.map(|event| event.event().clone());
    let events = events.map(move |logged| event(logged.inspect_err(access_log::note_error)));
    Ok(Box::pin(streams::during(reply.place, events)))
}

fn task(reply: Reply) -> Result<Task, A2aError> {
    match reply.result {
        OperationResult::Task(task) => task.into_task(),
        OperationResult::CanceledTask(task) => Ok(task),
        _ => Err(other_result()),
    }
}

fn tasks(reply: Reply) -> Result<ListTasksResponse, A2aError> {
    let OperationResult::Tasks(tasks) = reply.result else { return Err(other_result()) };
    Ok(tasks)
}

fn push_config(reply: Reply) -> Result<TaskPushNotificationConfig, A2aError> {
    let OperationResult::PushConfig(config) = reply.result else { return Err(other_result()) };
    Ok(config)
}

fn push_configs(reply: Reply) -> Result<ListTaskPushNotificationConfigsResponse, A2aError> {
    let OperationResult::PushConfigs(configs) = reply.result else { return Err(other_result()) };
    Ok(configs)
}

#[expect(clippy::needless_pass_by_value, reason = "the results of all operations are taken by value")]
fn no_push_config(reply: Reply) -> Result<(), A2aError> {
    let OperationResult::NoPushConfig = reply.result else { return Err(other_result()) };
    Ok(())
}

fn extended_card(reply: Reply) -> Result<AgentCard, A2aError> {
    let OperationResult::ExtendedAgentCard(card) = reply.result else { return Err(other_result()) };
    Ok(Arc::unwrap_or_clone(card))
}

fn method_reply(reply: Reply) -> Result<MethodReply, A2aError> {
    match reply.result {
        OperationResult::Method(MethodResult::Value(value)) => Ok(MethodReply::Value(value)),
        OperationResult::Method(MethodResult::Results(results)) => {
            let results = results.map(|result| result.inspect_err(access_log::note_error));
            Ok(MethodReply::Results(Box::pin(streams::during(reply.place, results))))
        }
        _ => Err(other_result()),
    }
}

#[async_trait]
impl annex_grpc::Operations for GrpcOperations {
    async fn send_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<annex_grpc::Reply<SendMessageResponse>, A2aError> {
        self.call(parameters, Operation::SendMessage(request), sent).await
    }

    async fn send_streaming_message(
        &self,
        parameters: CallParameters,
        request: SendMessageRequest,
    ) -> Result<annex_grpc::Reply<EventStream>, A2aError> {
        self.call(parameters, Operation::SendStreamingMessage(request), events).await
    }

    async fn get_task(
        &self,
        parameters: CallParameters,
        request: GetTaskRequest,
    ) -> Result<annex_grpc::Reply<Task>, A2aError> {
        self.call(parameters, Operation::GetTask(request), task).await
    }

    async fn list_tasks(
        &self,
        parameters: CallParameters,
        request: ListTasksRequest,
    ) -> Result<annex_grpc::Reply<ListTasksResponse>, A2aError> {
        self.call(parameters, Operation::ListTasks(request), tasks).await
    }

    async fn cancel_task(
        &self,
        parameters: CallParameters,
        request: CancelTaskRequest,
    ) -> Result<annex_grpc::Reply<Task>, A2aError> {
        self.call(parameters, Operation::CancelTask(request), task).await
    }

    async fn subscribe_to_task(
        &self,
        parameters: CallParameters,
        request: SubscribeToTaskRequest,
    ) -> Result<annex_grpc::Reply<EventStream>, A2aError> {
        let operation = match parameters.service {
            ServiceVersion::V1_0 => Operation::SubscribeToTask(request),
            ServiceVersion::V0_3 => Operation::SubscribeToTurn(request),
        };
        self.call(parameters, operation, events).await
    }

    async fn create_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: TaskPushNotificationConfig,
    ) -> Result<annex_grpc::Reply<TaskPushNotificationConfig>, A2aError> {
        self.call(parameters, Operation::CreatePushConfig(request), push_config).await
    }

    async fn get_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<annex_grpc::Reply<TaskPushNotificationConfig>, A2aError> {
        // Only a call of 0.3 can leave out the id of the config.
        let operation = if request.id.is_empty() {
            Operation::GetFirstPushConfig(request)
        } else {
            Operation::GetPushConfig(request)
        };
        self.call(parameters, operation, push_config).await
    }

    async fn list_task_push_notification_configs(
        &self,
        parameters: CallParameters,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<annex_grpc::Reply<ListTaskPushNotificationConfigsResponse>, A2aError> {
        self.call(parameters, Operation::ListPushConfigs(request), push_configs).await
    }

    async fn delete_task_push_notification_config(
        &self,
        parameters: CallParameters,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<annex_grpc::Reply<()>, A2aError> {
        self.call(parameters, Operation::DeletePushConfig(request), no_push_config).await
    }

    async fn get_extended_agent_card(
        &self,
        parameters: CallParameters,
        request: GetExtendedAgentCardRequest,
    ) -> Result<annex_grpc::Reply<AgentCard>, A2aError> {
        match parameters.service {
            ServiceVersion::V1_0 => {
                self.call(parameters, Operation::GetExtendedAgentCard(request), extended_card).await
            }
            ServiceVersion::V0_3 => self.card_of_0_3(parameters).await,
        }
    }

    async fn call_method(
        &self,
        parameters: CallParameters,
        method: String,
        params: Json,
    ) -> Result<annex_grpc::Reply<MethodReply>, A2aError> {
        let parameters = if self.0.speaks_v0_3 { of_either_version(parameters) } else { parameters };
        let operation = self.operations(&parameters.headers).and_then(|operations| operations.method(&method, params));
        self.call(parameters, operation.inspect_err(access_log::note_error)?, method_reply).await
    }

    fn is_serving(&self) -> bool {
        self.0.phase() == Phase::Ready
    }
}
