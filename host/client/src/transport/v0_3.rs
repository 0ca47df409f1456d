//! JSON-RPC as servers of A2A 0.3 have it. Requests and answers are those of 1.0 on this side.

use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, parse_extensions};
use annex_protocol::v0_3::{self, Method, answer as read, call};
use annex_protocol::{
    CancelTaskRequest, ExtensionUri, GetTaskRequest, Json, JsonObject, SendMessageRequest, SubscribeToTaskRequest,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::{self, Unreadable};
use super::json_rpc::{self, JSON, Request};
use super::wire::{JsonStream, Transport, WireCall};
use crate::http::{self as transport, EVENT_STREAM, Http};
use crate::{Answer, ClientError, Operation};

const BINDING: &str = "JSON-RPC of A2A 0.3";

pub(super) struct JsonRpc {
    http: Http,
    url: Url,
}

impl JsonRpc {
    pub(super) fn new(http: Http, url: Url) -> Self {
        Self { http, url }
    }

    async fn post(&self, call: WireCall, accept: &str) -> Result<Response, ClientError> {
        let WireCall { operation, params, headers } = call;
        let (method, params) = written(&operation, &params)?;
        let body = Request::new(method.name(), &params).encode(BINDING)?;
        let request = self.http.client.post(self.url.clone()).headers(of_0_3(headers)).header(CONTENT_TYPE, JSON);
        transport::send(self.url.as_str(), request.header(ACCEPT, accept).body(body)).await
    }
}

#[async_trait]
impl Transport for JsonRpc {
    async fn call(&self, call: WireCall) -> Result<Answer<Json>, ClientError> {
        // These two have a task as their result and nothing else, so its `kind` is not asked for.
        let reads_task = matches!(call.operation, Operation::GetTask | Operation::CancelTask);
        let response = self.post(call, JSON).await?;
        let active = active(response.headers());
        let read = if reads_task { task } else { event };
        Ok(Answer { value: answer::single(&self.http, response, read).await?, active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<JsonStream>, ClientError> {
        let response = self.post(call, EVENT_STREAM).await?;
        let active = active(response.headers());
        if transport::is_event_stream(&response) {
            return Ok(Answer { value: answer::events(&self.http, response, event), active });
        }
        let only = answer::single(&self.http, response, event).await?;
        Ok(Answer { value: stream::iter([Ok(only)]).boxed(), active })
    }
}

/// The method of 0.3 for an operation, and its parameters.
fn written(operation: &Operation, params: &JsonObject) -> Result<(Method, Json), ClientError> {
    let of_task = |params: call::TaskParams<'_>| encoded(&params);
    let of_message = |request: &SendMessageRequest| encoded(&call::MessageSendParams::from(request));
    Ok(match operation {
        Operation::SendMessage => (Method::SendMessage, of_message(&decoded(params)?)?),
        Operation::SendStreamingMessage => (Method::SendStreamingMessage, of_message(&decoded(params)?)?),
        Operation::GetTask => {
            let request: GetTaskRequest = decoded(params)?;
            (Method::GetTask, of_task((&request).into())?)
        }
        Operation::CancelTask => {
            let request: CancelTaskRequest = decoded(params)?;
            (Method::CancelTask, of_task((&request).into())?)
        }
        Operation::SubscribeToTask => {
            let request: SubscribeToTaskRequest = decoded(params)?;
            (Method::SubscribeToTask, of_task((&request).into())?)
        }
        other => return Err(not_carried(format!("{other} is sent to agents of A2A 1.0 only"))),
    })
}

fn decoded<T: DeserializeOwned>(params: &JsonObject) -> Result<T, ClientError> {
    serde_json::from_str(&params.to_json_string()).map_err(|error| not_carried(error.to_string()))
}

fn encoded<T: Serialize>(params: &T) -> Result<Json, ClientError> {
    Json::from_serialize(params).map_err(|error| not_carried(error.to_string()))
}

fn not_carried(problem: String) -> ClientError {
    ClientError::NotCarried { binding: BINDING, problem }
}

/// The header fields with the version and the name of the extensions' field that 0.3 has.
fn of_0_3(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(A2A_VERSION, HeaderValue::from_static(v0_3::VERSION));
    if let Some(extensions) = headers.remove(A2A_EXTENSIONS) {
        headers.insert(v0_3::X_A2A_EXTENSIONS, extensions);
    }
    headers
}

/// The extensions that an answer names as active, under either name of the field.
fn active(headers: &HeaderMap) -> Vec<ExtensionUri> {
    // Servers of both versions may answer under the newer name.
    let fields = [v0_3::X_A2A_EXTENSIONS, A2A_EXTENSIONS].into_iter().flat_map(|name| headers.get_all(name));
    parse_extensions(fields.filter_map(|value| value.to_str().ok()))
}

fn event(text: &str) -> Result<Json, Unreadable> {
    let event = read::event(&json_rpc::result(text)?);
    event.and_then(|event| Json::from_serialize(&event)).map_err(foreign)
}

fn task(text: &str) -> Result<Json, Unreadable> {
    let task = read::task(&json_rpc::result(text)?);
    task.and_then(|task| Json::from_serialize(&task)).map_err(foreign)
}

fn foreign(error: serde_json::Error) -> Unreadable {
    Unreadable::Foreign(error.into())
}
