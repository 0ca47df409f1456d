//! The JSON-RPC binding (specification section 9).

use annex_protocol::Json;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use reqwest::Url;
use serde::{Deserialize, Deserializer};

use super::answer;
use super::raw_answer::{Form, RawAnswer, ReadFailure, ResultPlace};
use super::wire::{Answers, Transport, WireCall, active};
use crate::http::{self as transport, EVENT_STREAM, Endpoint, Http, Response};
use crate::remote_error::RpcError;
use crate::{Answer, ClientError};

pub(super) const JSON: &str = "application/json";

pub(super) struct JsonRpc {
    endpoint: Endpoint,
}

pub(super) const FORM: Form = Form { read: result, place: ResultPlace::Result };

/// The JSON text of a request. `params` is JSON too.
pub(super) fn request(method: &str, params: &str) -> String {
    // Each call is an HTTP request of its own, so that all can have the same id.
    const HEAD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"#;
    const PARAMS: &str = r#","params":"#;
    let method = Json::string(method);
    [HEAD, method.get(), PARAMS, params, "}"].concat()
}

#[derive(Deserialize)]
struct RpcResponse {
    #[serde(default, deserialize_with = "present")]
    result: Option<Json>,
    error: Option<RpcError>,
}

/// Reads a member that is present, even if it is `null`. Some operations answer with `"result": null`, which is not the
/// same as a missing result.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    <Json as Deserialize>::deserialize(deserializer).map(Some)
}

impl JsonRpc {
    pub(super) fn new(http: Http, url: Url) -> Self {
        Self { endpoint: Endpoint::new(http, url) }
    }

    async fn post(&self, call: WireCall, accept: &'static str) -> Result<Response, ClientError> {
        let body = request(call.operation.name(), &call.params);
        post(&self.endpoint, call.headers, accept, body).await
    }
}

/// Posts a request as JSON.
pub(super) async fn post(
    endpoint: &Endpoint,
    mut headers: HeaderMap,
    accept: &'static str,
    body: String,
) -> Result<Response, ClientError> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    endpoint.send((Method::POST, &endpoint.url), headers, body).await
}

#[async_trait]
impl Transport for JsonRpc {
    async fn call(&self, call: WireCall) -> Result<Answer<RawAnswer>, ClientError> {
        let response = self.post(call, JSON).await?;
        let active = active(response.headers());
        Ok(Answer { value: answer::single(&self.endpoint.http, response, FORM).await?, active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError> {
        let room = call.room.clone();
        let response = self.post(call, EVENT_STREAM).await?;
        let active = active(response.headers());
        if transport::is_event_stream(&response) {
            return Ok(Answer { value: answer::events(&self.endpoint.http, response, FORM, room), active });
        }
        let only = answer::single(&self.endpoint.http, response, FORM).await?.taken_apart()?;
        Ok(Answer { value: stream::iter([Ok(only)]).boxed(), active })
    }
}

pub(super) fn result(text: &str) -> Result<Json, ReadFailure> {
    let response: RpcResponse = serde_json::from_str(text).map_err(|error| ReadFailure::Foreign(error.into()))?;
    match response {
        // JSON-RPC 2.0 forbids both members. Where both come, the answer is no success.
        RpcResponse { error: Some(error), .. } => Err(ReadFailure::Agent(error.into())),
        RpcResponse { result: Some(result), .. } => Ok(result),
        RpcResponse { .. } => Err(ReadFailure::Foreign("it has neither `result` nor `error`".into())),
    }
}
