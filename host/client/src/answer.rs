//! The answers of an agent.

use std::pin::Pin;

use annex_protocol::{ExtensionUri, Json, StreamResponse};
use futures::Stream;

use crate::ClientError;

/// An agent's answer, and the extensions that the agent reports as active.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// The answer itself.
    pub value: T,
    /// The active extensions.
    pub active: Vec<ExtensionUri>,
}

/// The events of a stream, in order. The stream ends after an error. Dropping the stream does not cancel the task.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<StreamResponse, ClientError>> + Send>>;

/// The results of a streaming method. The stream ends after an error.
pub type ResultStream = Pin<Box<dyn Stream<Item = Result<Json, ClientError>> + Send>>;
