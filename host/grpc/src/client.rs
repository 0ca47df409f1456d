//! The client's side of the binding: writes requests and reads answers.
//!
//! Requests and answers are ProtoJSON, as on the other bindings, so that a client can treat all bindings alike.

use std::error::Error as _;

use annex_protocol::service::{A2A_EXTENSIONS, parse_extensions};
use annex_protocol::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, JsonObject, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::{HeaderMap, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::codec::DecodeFailure;
use crate::convert::{self, FromProto, IntoProto};
use crate::pb;
use crate::pb::a2a_service_client::A2aServiceClient;
use crate::pb::extension::extension_service_client::ExtensionServiceClient;
use crate::pb::extension::{CallRequest, CallResponse};
use crate::{Reply, status};

/// Calls the service of one agent through `S`, which sends HTTP/2 requests.
#[derive(Clone)]
pub struct Client<S> {
    service: A2aServiceClient<S>,
    extensions: ExtensionServiceClient<S>,
}

/// The reason why a call has no answer.
#[derive(Debug)]
pub enum CallError {
    /// The request contains a value that gRPC cannot carry, such as an integer without an equal double. Nothing was
    /// sent.
    Request(String),
    /// The agent's error.
    Agent {
        /// The name of the gRPC status, such as `NOT_FOUND`.
        status: &'static str,
        /// The text of the error.
        message: String,
        /// `google.rpc` messages as ProtoJSON, each an object with `@type`.
        details: Vec<Json>,
    },
    /// The answer is not valid A2A.
    Answer(String),
    /// An answer is larger than the client's limit on messages.
    TooLarge,
    /// The transport failed. The source of the status is the error of `S` or of the connection.
    Transport(Status),
}

/// The answers of a stream as ProtoJSON. The stream ends after an error.
pub type Events = BoxStream<'static, Result<Json, CallError>>;

impl<S> Client<S>
where
    S: GrpcService<Body> + Clone + Send + Sync,
    S::Future: Send,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// A client of the agent at `origin`. Each message of an answer may have at most `max_message_bytes` bytes.
    pub fn new(service: S, origin: Uri, max_message_bytes: usize) -> Self {
        let extensions = ExtensionServiceClient::with_origin(service.clone(), origin.clone());
        let service = A2aServiceClient::with_origin(service, origin);
        Self {
            service: service.max_decoding_message_size(max_message_bytes),
            extensions: extensions.max_decoding_message_size(max_message_bytes),
        }
    }

    /// Calls an rpc that is answered with one message. `headers` becomes the metadata of the call.
    ///
    /// # Errors
    /// When the rpc is unknown, `params` is not its request message, or the call fails.
    pub async fn call(&self, rpc: &str, params: &JsonObject, headers: HeaderMap) -> Result<Reply<Json>, CallError> {
        // tonic's clients want `&mut self`. Clones are cheap and share the connection, so that calls run side by side.
        let mut service = self.service.clone();
        match rpc {
            "SendMessage" => {
                let request = write::<SendMessageRequest, _>(params, headers)?;
                read::<SendMessageResponse, _>(service.send_message(request).await)
            }
            "GetTask" => {
                let request = write::<GetTaskRequest, _>(params, headers)?;
                read::<Task, _>(service.get_task(request).await)
            }
            "ListTasks" => {
                let request = write::<ListTasksRequest, _>(params, headers)?;
                read::<ListTasksResponse, _>(service.list_tasks(request).await)
            }
            "CancelTask" => {
                let request = write::<CancelTaskRequest, _>(params, headers)?;
                read::<Task, _>(service.cancel_task(request).await)
            }
            "CreateTaskPushNotificationConfig" => {
                let request = write::<TaskPushNotificationConfig, pb::TaskPushNotificationConfig>(params, headers)?;
                read::<TaskPushNotificationConfig, _>(service.create_task_push_notification_config(request).await)
            }
            "GetTaskPushNotificationConfig" => {
                let request = write::<GetTaskPushNotificationConfigRequest, _>(params, headers)?;
                read::<TaskPushNotificationConfig, _>(service.get_task_push_notification_config(request).await)
            }
            "ListTaskPushNotificationConfigs" => {
                let request = write::<ListTaskPushNotificationConfigsRequest, _>(params, headers)?;
                let answered = service.list_task_push_notification_configs(request).await;
                read::<ListTaskPushNotificationConfigsResponse, _>(answered)
            }
            "DeleteTaskPushNotificationConfig" => {
                let request = write::<DeleteTaskPushNotificationConfigRequest, _>(params, headers)?;
                read::<(), _>(service.delete_task_push_notification_config(request).await)
            }
            "GetExtendedAgentCard" => {
                let request = write::<GetExtendedAgentCardRequest, _>(params, headers)?;
                read::<AgentCard, _>(service.get_extended_agent_card(request).await)
            }
            _ => Err(no_rpc(rpc)),
        }
    }

    /// Calls an rpc that is answered with a stream. `headers` becomes the metadata of the call.
    ///
    /// # Errors
    /// When the rpc is unknown, `params` is not its request message, or the call fails.
    pub async fn open(&self, rpc: &str, params: &JsonObject, headers: HeaderMap) -> Result<Reply<Events>, CallError> {
        let mut service = self.service.clone();
        let opened = match rpc {
            "SendStreamingMessage" => {
                let request = write::<SendMessageRequest, _>(params, headers)?;
                service.send_streaming_message(request).await
            }
            "SubscribeToTask" => {
                let request = write::<SubscribeToTaskRequest, _>(params, headers)?;
                service.subscribe_to_task(request).await
            }
            _ => return Err(no_rpc(rpc)),
        };
        let (metadata, events, _) = opened.map_err(failed)?.into_parts();
        let events = events.map(|event| event.map_err(failed).and_then(event_json));
        Ok(Reply { value: ends_with_error(events), active: active(&metadata) })
    }

    /// Calls an extension's method with one answer. The JSON is sent as text, so that numbers keep their digits.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn call_method(
        &self,
        method: &str,
        params: &JsonObject,
        headers: HeaderMap,
    ) -> Result<Reply<Json>, CallError> {
        let answered = self.extensions.clone().call(method_call(method, params, headers)).await;
        let (metadata, proto, _) = answered.map_err(failed)?.into_parts();
        Ok(Reply { value: method_result(&proto)?, active: active(&metadata) })
    }

    /// Calls an extension's method with a stream of answers.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn open_method(
        &self,
        method: &str,
        params: &JsonObject,
        headers: HeaderMap,
    ) -> Result<Reply<Events>, CallError> {
        let opened = self.extensions.clone().call_streaming(method_call(method, params, headers)).await;
        let (metadata, results, _) = opened.map_err(failed)?.into_parts();
        let results = results.map(|result| method_result(&result.map_err(failed)?));
        Ok(Reply { value: ends_with_error(results), active: active(&metadata) })
    }
}

fn no_rpc(name: &str) -> CallError {
    CallError::Request(format!("gRPC has no {name}"))
}

/// An event as JSON; an empty object for an event of an unknown kind.
fn event_json(event: crate::pb::StreamResponse) -> Result<Json, CallError> {
    if event.payload.is_none() {
        return Json::parse("{}".to_owned()).map_err(|error| CallError::Answer(error.to_string()));
    }
    json::<StreamResponse, _>(event)
}

/// Ends a stream after its first error. The agent cannot have sent anything after that.
fn ends_with_error(events: impl Stream<Item = Result<Json, CallError>> + Send + 'static) -> Events {
    let until_error = |is_over: &mut bool, event: Result<Json, CallError>| {
        // The error itself is still returned, and nothing after it.
        let shown = (!std::mem::replace(is_over, event.is_err())).then_some(event);
        std::future::ready(shown)
    };
    events.scan(false, until_error).boxed()
}

fn method_call(method: &str, params: &JsonObject, headers: HeaderMap) -> Request<CallRequest> {
    let call = CallRequest { method: method.to_owned(), params_json: params.to_json_string() };
    with_metadata(call, headers)
}

fn method_result(proto: &CallResponse) -> Result<Json, CallError> {
    // Not `Json::parse`, which refuses values that some readers cannot read: the agent cannot be sent an error.
    serde_json::from_str(&proto.result_json).map_err(|error| CallError::Answer(error.to_string()))
}

fn with_metadata<P>(proto: P, headers: HeaderMap) -> Request<P> {
    let mut request = Request::new(proto);
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    request
}

fn write<T, P>(params: &JsonObject, headers: HeaderMap) -> Result<Request<P>, CallError>
where
    T: DeserializeOwned + IntoProto<P>,
{
    let request: T =
        serde_json::from_str(&params.to_json_string()).map_err(|error| CallError::Request(error.to_string()))?;
    // An integer without an equal double fails here, before anything is sent.
    let proto = request.into_proto().map_err(|error| CallError::Request(error.to_string()))?;
    Ok(with_metadata(proto, headers))
}

fn read<T, P>(answered: Result<Response<P>, Status>) -> Result<Reply<Json>, CallError>
where
    T: FromProto<P> + Serialize,
{
    let (metadata, proto, _) = answered.map_err(failed)?.into_parts();
    Ok(Reply { value: json::<T, P>(proto)?, active: active(&metadata) })
}

fn json<T: FromProto<P> + Serialize, P>(proto: P) -> Result<Json, CallError> {
    let value: T = convert::of_answer(proto).map_err(|error| CallError::Answer(error.to_string()))?;
    Json::from_peer(&value).map_err(|error| CallError::Answer(error.to_string()))
}

fn active(metadata: &MetadataMap) -> Vec<annex_protocol::ExtensionUri> {
    parse_extensions(metadata.get_all(A2A_EXTENSIONS).iter().filter_map(|value| value.to_str().ok()))
}

/// Converts a status into an error. A status that tonic created has a source; a status from the agent has none.
fn failed(status: Status) -> CallError {
    if status::is_too_large(&status) && status.details().is_empty() {
        return CallError::TooLarge;
    }
    if let Some(failure) = status.source().and_then(|source| source.downcast_ref::<DecodeFailure>()) {
        return CallError::Answer(failure.to_string());
    }
    // A status from the agent has no source. A status that tonic creates for a broken connection has one.
    if status.source().is_some() {
        return CallError::Transport(status);
    }
    let details = status::details(&status);
    CallError::Agent { status: status::name(status.code()), message: status.message().to_owned(), details }
}
