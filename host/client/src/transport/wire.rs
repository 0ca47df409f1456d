//! The trait that each binding implements, and the call that a binding sends.

use annex_protocol::service::{A2A_EXTENSIONS, parse_extensions};
use annex_protocol::{ExtensionUri, JsonObject};
use async_trait::async_trait;
use futures::stream::BoxStream;
use http::HeaderMap;

use super::raw_answer::RawAnswer;
use crate::{Answer, ClientError, Operation, StreamRoom};

/// A call with all its parameters.
pub(crate) struct WireCall {
    pub(crate) operation: Operation,
    /// The ProtoJSON of the request message, which is a JSON object.
    pub(crate) params: String,
    pub(crate) headers: HeaderMap,
    /// The limit on the bytes of a stream; `None` if the stream has no such limit.
    pub(crate) room: Option<StreamRoom>,
}

impl WireCall {
    /// The members of the request message, for a binding that sends them in its own form.
    pub(super) fn members(&self, binding: &'static str) -> Result<JsonObject, ClientError> {
        JsonObject::parse(&self.params).map_err(|error| ClientError::NotCarried { binding, problem: error.to_string() })
    }
}

/// The answers of a stream. The stream ends after an error.
pub(crate) type Answers = BoxStream<'static, Result<RawAnswer, ClientError>>;

/// Sends calls to one interface of one agent, in the form of the interface's binding.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Sends a call with one answer.
    async fn call(&self, call: WireCall) -> Result<Answer<RawAnswer>, ClientError>;

    /// Sends a call with a stream of answers.
    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError>;
}

/// The extensions that the header of a response lists as active.
pub(super) fn active(headers: &HeaderMap) -> Vec<ExtensionUri> {
    parse_extensions(headers.get_all(A2A_EXTENSIONS).iter().filter_map(|value| value.to_str().ok()))
}
