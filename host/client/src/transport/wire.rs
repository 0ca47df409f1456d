//! The trait that each binding implements, and the calls that travel by it.

use annex_protocol::service::{A2A_EXTENSIONS, parse_extensions};
use annex_protocol::{ExtensionUri, Json, JsonObject};
use async_trait::async_trait;
use http::HeaderMap;

use crate::{Answer, ClientError, Operation, ResultStream};

/// A call with everything that is sent.
pub(crate) struct WireCall {
    pub(crate) operation: Operation,
    /// The request message as ProtoJSON.
    pub(crate) params: JsonObject,
    pub(crate) headers: HeaderMap,
}

/// The answers of a stream as ProtoJSON.
pub(crate) type JsonStream = ResultStream;

/// A binding to one interface of one agent.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Sends a call that has one answer.
    async fn call(&self, call: WireCall) -> Result<Answer<Json>, ClientError>;

    /// Sends a call that is answered by a stream.
    async fn open(&self, call: WireCall) -> Result<Answer<JsonStream>, ClientError>;
}

/// The extensions that the header of an answer names as active.
pub(super) fn active(headers: &HeaderMap) -> Vec<ExtensionUri> {
    parse_extensions(headers.get_all(A2A_EXTENSIONS).iter().filter_map(|value| value.to_str().ok()))
}
