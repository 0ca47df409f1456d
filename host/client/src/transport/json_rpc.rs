//! The JSON-RPC binding (specification section 9).

use annex_protocol::Json;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Response, Url};
use serde::{Deserialize, Deserializer, Serialize};

use super::answer::{self, Unreadable};
use super::wire::{JsonStream, Transport, WireCall, active};
use crate::http::{self as transport, EVENT_STREAM, Http};
use crate::remote_error::RpcError;
use crate::{Answer, ClientError};

pub(super) const JSON: &str = "application/json";

pub(super) struct JsonRpc {
    http: Http,
    url: Url,
}

#[derive(Serialize)]
pub(super) struct Request<'a, P> {
    jsonrpc: &'static str,
    /// Each call is an HTTP request of its own, so that all can have the same id.
    id: u32,
    method: &'a str,
    params: &'a P,
}

impl<'a, P: Serialize> Request<'a, P> {
    pub(super) fn new(method: &'a str, params: &'a P) -> Self {
        Self { jsonrpc: "2.0", id: 1, method, params }
    }

    pub(super) fn encode(&self, binding: &'static str) -> Result<String, ClientError> {
        serde_json::to_string(self).map_err(|error| ClientError::NotCarried { binding, problem: error.to_string() })
    }
}

#[derive(Deserialize)]
struct RpcResponse {
    #[serde(default, deserialize_with = "present")]
    result: Option<Json>,
    error: Option<RpcError>,
}

/// Keeps `"result": null`, which some operations answer, apart from no result.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    <Json as Deserialize>::deserialize(deserializer).map(Some)
}

impl JsonRpc {
    pub(super) fn new(http: Http, url: Url) -> Self {
        Self { http, url }
    }

    async fn post(&self, call: WireCall, accept: &str) -> Result<Response, ClientError> {
        let body = Request::new(call.operation.name(), &call.params).encode("JSONRPC")?;
        let request = self.http.client.post(self.url.clone()).headers(call.headers).header(CONTENT_TYPE, JSON);
        transport::send(self.url.as_str(), request.header(ACCEPT, accept).body(body)).await
    }
}

#[async_trait]
impl Transport for JsonRpc {
    async fn call(&self, call: WireCall) -> Result<Answer<Json>, ClientError> {
        let response = self.post(call, JSON).await?;
        let active = active(response.headers());
        Ok(Answer { value: answer::single(&self.http, response, result).await?, active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<JsonStream>, ClientError> {
        let response = self.post(call, EVENT_STREAM).await?;
        let active = active(response.headers());
        if transport::is_event_stream(&response) {
            return Ok(Answer { value: answer::events(&self.http, response, result), active });
        }
        let only = answer::single(&self.http, response, result).await?;
        Ok(Answer { value: stream::iter([Ok(only)]).boxed(), active })
    }
}

pub(super) fn result(text: &str) -> Result<Json, Unreadable> {
    let response: RpcResponse = serde_json::from_str(text).map_err(|error| Unreadable::Foreign(error.into()))?;
    match response {
        // JSON-RPC 2.0 forbids both members. Where both come, the answer is no success.
        RpcResponse { error: Some(error), .. } => Err(Unreadable::Agent(error.into())),
        RpcResponse { result: Some(result), .. } => Ok(result),
        RpcResponse { .. } => Err(Unreadable::Foreign("it has neither `result` nor `error`".into())),
    }
}
