//! The trait that each binding implements, and the calls that travel by it.

use annex_protocol::service::{A2A_EXTENSIONS, parse_extensions};
use annex_protocol::{ExtensionUri, JsonObject};
use async_trait::async_trait;
use futures::stream::BoxStream;
use http::HeaderMap;

use super::unread::Unread;
use crate::{Answer, ClientError, Operation, StreamRoom};

/// A call with everything that is sent.
pub(crate) struct WireCall {
    pub(crate) operation: Operation,
    /// The request message as ProtoJSON, one object.
    pub(crate) params: String,
    pub(crate) headers: HeaderMap,
    /// What a stream takes of; `None` where its reader says when it is enough.
    pub(crate) room: Option<StreamRoom>,
}

impl WireCall {
    /// The members of the request message, for a binding that does not send it as it is.
    pub(super) fn members(&self, binding: &'static str) -> Result<JsonObject, ClientError> {
        JsonObject::parse(&self.params).map_err(|error| ClientError::NotCarried { binding, problem: error.to_string() })
    }
}

/// The answers of a stream. It ends after an error.
pub(crate) type Answers = BoxStream<'static, Result<Unread, ClientError>>;

/// A binding to one interface of one agent.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Sends a call that has one answer.
    async fn call(&self, call: WireCall) -> Result<Answer<Unread>, ClientError>;

    /// Sends a call that is answered by a stream.
    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError>;
}

/// The extensions that the header of an answer names as active.
pub(super) fn active(headers: &HeaderMap) -> Vec<ExtensionUri> {
    parse_extensions(headers.get_all(A2A_EXTENSIONS).iter().filter_map(|value| value.to_str().ok()))
}
