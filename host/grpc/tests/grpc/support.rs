//! Operations whose answers a test scripts, and a client of a server with these operations.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::{Message, Part, SendMessageRequest, part};
use annex_grpc::{CallParameters, EventStream, Limits, MethodReply, Operations, Reply, routes, unknown_service};
use annex_protocol as a2a;
use annex_protocol::{A2aError, ExtensionUri, StreamResponse};
use async_trait::async_trait;
use axum::Router;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};

pub(crate) const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// A call that reached the operations.
pub(crate) struct RecordedCall {
    pub(crate) operation: &'static str,
    pub(crate) parameters: CallParameters,
    /// The request in ProtoJSON.
    pub(crate) request: String,
}

/// Operations that give every call the same answer and record the calls.
pub(crate) struct Script {
    /// The answer in ProtoJSON.
    answer: Result<String, A2aError>,
    events: Mutex<Vec<Result<StreamResponse, A2aError>>>,
    active: Vec<ExtensionUri>,
    serving: bool,
    seen: Mutex<Vec<RecordedCall>>,
}

impl Script {
    pub(crate) fn answering(json: &str) -> Self {
        let (events, seen) = Default::default();
        Self { answer: Ok(json.to_owned()), events, active: Vec::new(), serving: true, seen }
    }

    pub(crate) fn failing(error: A2aError) -> Self {
        Self { answer: Err(error), ..Self::answering("null") }
    }

    pub(crate) fn streaming(events: Vec<Result<StreamResponse, A2aError>>) -> Self {
        Self { events: Mutex::new(events), ..Self::answering("null") }
    }

    pub(crate) fn with_active(self, active: &[&str]) -> Self {
        Self { active: active.iter().copied().map(ExtensionUri::from).collect(), ..self }
    }

    pub(crate) fn draining() -> Self {
        Self { serving: false, ..Self::answering("null") }
    }

    /// The only call so far. Panics if there were none or several.
    pub(crate) fn call(&self) -> RecordedCall {
        let mut seen = self.seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        seen.remove(0)
    }

    /// Checks the operation and the request of the only call so far.
    pub(crate) fn check(&self, operation: &str, request: &str) {
        let call = self.call();
        assert_eq!((call.operation, call.request.as_str()), (operation, request));
    }

    pub(crate) fn check_not_called(&self) {
        assert!(self.seen.lock().unwrap().is_empty());
    }

    fn see(&self, operation: &'static str, parameters: CallParameters, request: &impl Serialize) {
        let request = serde_json::to_string(request).unwrap();
        self.seen.lock().unwrap().push(RecordedCall { operation, parameters, request });
    }

    fn reply<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        parameters: CallParameters,
        request: &impl Serialize,
    ) -> Result<Reply<T>, A2aError> {
        self.see(operation, parameters, request);
        let value = serde_json::from_str(&self.answer.clone()?).unwrap();
        Ok(Reply { value, active: self.active.clone() })
    }

    fn events(
        &self,
        operation: &'static str,
        parameters: CallParameters,
        request: &impl Serialize,
    ) -> Result<Reply<EventStream>, A2aError> {
        self.see(operation, parameters, request);
        self.answer.clone()?;
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        Ok(Reply { value: Box::pin(futures::stream::iter(events)), active: self.active.clone() })
    }
}

macro_rules! scripted {
    ($($method:ident($request:ty) -> $response:ty = $name:literal via $via:ident;)+) => {
        #[async_trait]
        impl Operations for Script {
            $(
                async fn $method(
                    &self,
                    parameters: CallParameters,
                    request: $request,
                ) -> Result<Reply<$response>, A2aError> {
                    self.$via($name, parameters, &request)
                }
            )+

            async fn call_method(
                &self,
                parameters: CallParameters,
                method: String,
                params: a2a::Json,
            ) -> Result<Reply<MethodReply>, A2aError> {
                self.see("call_method", parameters, &(&method, params));
                let value = a2a::Json::parse(self.answer.clone()?).unwrap();
                let value = match method.as_str() {
                    "stream" => {
                        let broken = A2aError::UnsupportedOperation { reason: "broken".to_owned() };
                        MethodReply::Results(Box::pin(futures::stream::iter([Ok(value), Err(broken)])))
                    }
                    _ => MethodReply::Value(value),
                };
                Ok(Reply { value, active: self.active.clone() })
            }

            fn is_serving(&self) -> bool {
                self.serving
            }
        }
    };
}

scripted! {
    send_message(a2a::SendMessageRequest) -> a2a::SendMessageResponse = "SendMessage" via reply;
    send_streaming_message(a2a::SendMessageRequest) -> EventStream = "SendStreamingMessage" via events;
    get_task(a2a::GetTaskRequest) -> a2a::Task = "GetTask" via reply;
    list_tasks(a2a::ListTasksRequest) -> a2a::ListTasksResponse = "ListTasks" via reply;
    cancel_task(a2a::CancelTaskRequest) -> a2a::Task = "CancelTask" via reply;
    subscribe_to_task(a2a::SubscribeToTaskRequest) -> EventStream = "SubscribeToTask" via events;
    create_task_push_notification_config(a2a::TaskPushNotificationConfig) -> a2a::TaskPushNotificationConfig
        = "CreateTaskPushNotificationConfig" via reply;
    get_task_push_notification_config(a2a::GetTaskPushNotificationConfigRequest) -> a2a::TaskPushNotificationConfig
        = "GetTaskPushNotificationConfig" via reply;
    list_task_push_notification_configs(a2a::ListTaskPushNotificationConfigsRequest)
        -> a2a::ListTaskPushNotificationConfigsResponse = "ListTaskPushNotificationConfigs" via reply;
    delete_task_push_notification_config(a2a::DeleteTaskPushNotificationConfigRequest) -> ()
        = "DeleteTaskPushNotificationConfig" via reply;
    get_extended_agent_card(a2a::GetExtendedAgentCardRequest) -> a2a::AgentCard = "GetExtendedAgentCard" via reply;
}

/// Starts a server with these operations on a free port, and connects to the server.
pub(crate) async fn channel(script: Arc<Script>) -> Channel {
    connected(routes(script, Limits { max_message_bytes: MAX_MESSAGE_BYTES }).fallback(unknown_service)).await
}

/// Starts an agent that answers every call with `message`, and connects to the agent.
pub(crate) async fn answering(message: &impl prost::Message) -> Channel {
    let mut body = vec![0];
    body.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
    body.extend(message.encode_to_vec());
    let answer =
        move || std::future::ready(([("content-type", "application/grpc"), ("grpc-status", "0")], body.clone()));
    connected(Router::new().fallback(answer)).await
}

pub(crate) async fn connected(router: Router) -> Channel {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

pub(crate) async fn start(script: Script) -> (A2aServiceClient<Channel>, Arc<Script>) {
    let script = Arc::new(script);
    (A2aServiceClient::new(channel(script.clone()).await), script)
}

pub(crate) fn text_part(text: &str) -> Part {
    Part { content: Some(part::Content::Text(text.to_owned())), ..Part::default() }
}

/// A minimal SendMessage request with this part.
pub(crate) fn sending(part: Part) -> SendMessageRequest {
    let message = Message { message_id: "m-1".into(), role: 1, parts: vec![part], ..Message::default() };
    SendMessageRequest { message: Some(message), ..SendMessageRequest::default() }
}

pub(crate) fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

pub(crate) fn string(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

pub(crate) fn object<const N: usize>(entries: [(&str, Value); N]) -> Struct {
    Struct { fields: entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}
