//! JSON-RPC for servers of A2A 0.3. Callers use the requests and answers of 1.0.

use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, parse_extensions};
use annex_protocol::v0_3::{self, Method, answer as read, call};
use annex_protocol::{
    CancelTaskRequest, ExtensionUri, GetTaskRequest, Json, JsonObject, Method as A2aMethod, SendMessageRequest,
    SubscribeToTaskRequest,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{HeaderMap, HeaderValue};
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer;
use super::json_rpc::{self, JSON};
use super::part_repair::{self, WritePart};
use super::raw_answer::{Form, RawAnswer, ReadFailure, ResultPlace};
use super::wire::{Answers, Transport, WireCall};
use crate::http::{self as transport, EVENT_STREAM, Endpoint, Http, Response};
use crate::{Answer, ClientError, Operation};

const BINDING: &str = "A2A 0.3";
const EVENT: Form = Form { read: event, place: ResultPlace::Unknown };
const TASK: Form = Form { read: task, place: ResultPlace::Unknown };

pub(super) struct JsonRpc {
    endpoint: Endpoint,
}

impl JsonRpc {
    pub(super) fn new(http: Http, url: Url) -> Self {
        Self { endpoint: Endpoint::new(http, url) }
    }

    async fn post(&self, call: WireCall, accept: &'static str) -> Result<Response, ClientError> {
        let (method, params) = written(&call)?;
        let body = json_rpc::request(method.name(), params.get());
        json_rpc::post(&self.endpoint, of_0_3(call.headers), accept, body).await
    }
}

#[async_trait]
impl Transport for JsonRpc {
    async fn call(&self, call: WireCall) -> Result<Answer<RawAnswer>, ClientError> {
        // These two have a task as their result and nothing else, so its `kind` is not asked for.
        let reads_task =
            matches!(call.operation, Operation::A2a(A2aMethod::GetTask) | Operation::A2a(A2aMethod::CancelTask));
        let response = self.post(call, JSON).await?;
        let active = active(response.headers());
        let form = if reads_task { TASK } else { EVENT };
        Ok(Answer { value: answer::single(&self.endpoint.http, response, form).await?, active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError> {
        let room = call.room.clone();
        let response = self.post(call, EVENT_STREAM).await?;
        let active = active(response.headers());
        if transport::is_event_stream(&response) {
            return Ok(Answer { value: answer::events(&self.endpoint.http, response, EVENT, room), active });
        }
        let only = answer::single(&self.endpoint.http, response, EVENT).await?.taken_apart()?;
        Ok(Answer { value: stream::iter([Ok(only)]).boxed(), active })
    }
}

/// Returns the 0.3 method for an operation, and the parameters in the form of 0.3. Fails for operations that 0.3 lacks.
fn written(call: &WireCall) -> Result<(Method, Json), ClientError> {
    let params = call.params.as_str();
    let of_task = |params: call::TaskParams<'_>| encoded(&params);
    let of_message = |request: &SendMessageRequest| encoded(&call::MessageSendParams::from(request));
    Ok(match &call.operation {
        Operation::A2a(A2aMethod::SendMessage) => (Method::SendMessage, of_message(&decoded(params)?)?),
        Operation::A2a(A2aMethod::SendStreamingMessage) => {
            (Method::SendStreamingMessage, of_message(&decoded(params)?)?)
        }
        Operation::A2a(A2aMethod::GetTask) => {
            let request: GetTaskRequest = decoded(params)?;
            (Method::GetTask, of_task((&request).into())?)
        }
        Operation::A2a(A2aMethod::CancelTask) => {
            let request: CancelTaskRequest = decoded(params)?;
            (Method::CancelTask, of_task((&request).into())?)
        }
        Operation::A2a(A2aMethod::SubscribeToTask) => {
            let request: SubscribeToTaskRequest = decoded(params)?;
            (Method::SubscribeToTask, of_task((&request).into())?)
        }
        other => return Err(lacking(other)),
    })
}

/// Reads the request message of a call.
pub(super) fn decoded<T: DeserializeOwned>(params: &str) -> Result<T, ClientError> {
    serde_json::from_str(params).map_err(|error| not_carried(error.to_string()))
}

/// Writes a request in the form of 0.3.
pub(super) fn encoded<T: Serialize>(params: &T) -> Result<Json, ClientError> {
    Json::from_serialize(params).map_err(|error| not_carried(error.to_string()))
}

/// The error for an operation that 0.3 lacks.
pub(super) fn lacking(operation: &Operation) -> ClientError {
    not_carried(format!("{operation} is sent to agents of A2A 1.0 only"))
}

fn not_carried(problem: String) -> ClientError {
    ClientError::NotCarried { binding: BINDING, problem }
}

/// Converts the header fields of a request to 0.3: sets the version, and renames the field that lists the extensions.
pub(super) fn of_0_3(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(A2A_VERSION, HeaderValue::from_static(v0_3::VERSION));
    if let Some(extensions) = headers.remove(A2A_EXTENSIONS) {
        headers.insert(v0_3::X_A2A_EXTENSIONS, extensions);
    }
    headers
}

/// The extensions that a response lists as active, in the header field of 0.3 or of 1.0.
pub(super) fn active(headers: &HeaderMap) -> Vec<ExtensionUri> {
    // Servers of both versions may answer under the newer name.
    let fields = [v0_3::X_A2A_EXTENSIONS, A2A_EXTENSIONS].into_iter().flat_map(|name| headers.get_all(name));
    parse_extensions(fields.filter_map(|value| value.to_str().ok()))
}

fn event(text: &str) -> Result<Json, ReadFailure> {
    let result = json_rpc::result(text)?;
    let event = with_odd_parts(&result, read::event, part_repair::of_0_3);
    match event.and_then(|event| Json::from_peer(&event)) {
        // The reader of a stream skips such an event.
        Err(_) if is_of_unknown_kind(&result) => Ok(result),
        event => event.map_err(foreign),
    }
}

fn is_of_unknown_kind(result: &Json) -> bool {
    let kind = result.to::<JsonObject>().ok().and_then(|object| object.get("kind")?.to::<String>().ok());
    kind.is_some_and(|kind| !matches!(kind.as_str(), "task" | "message" | "status-update" | "artifact-update"))
}

fn task(text: &str) -> Result<Json, ReadFailure> {
    let task = with_odd_parts(&json_rpc::result(text)?, read::task, part_repair::of_0_3);
    task.and_then(|task| Json::from_peer(&task)).map_err(foreign)
}

/// Decodes an answer. If that fails, repairs the answer's parts and tries again.
pub(super) fn with_odd_parts<T>(
    answer: &Json,
    read: fn(&Json) -> Result<T, serde_json::Error>,
    write: WritePart,
) -> Result<T, serde_json::Error> {
    read(answer).or_else(|error| {
        let mended = part_repair::mended(answer, write);
        mended.and_then(|mended| read(&mended).ok()).ok_or(error)
    })
}

pub(super) fn foreign(error: serde_json::Error) -> ReadFailure {
    ReadFailure::Foreign(error.into())
}
