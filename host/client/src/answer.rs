//! The answers of an agent.

use std::pin::Pin;

use annex_protocol::{ExtensionUri, Json, StreamResponse};
use futures::Stream;

use crate::ClientError;

/// An answer of the agent, and the extensions that it says were active.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// The answer itself.
    pub value: T,
    /// The active extensions.
    pub active: Vec<ExtensionUri>,
}

/// The events of a stream in order. It ends after an error. Dropping it ends the stream, not the task.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<StreamResponse, ClientError>> + Send>>;

/// The results of a method that streams them. It ends after an error.
pub type ResultStream = Pin<Box<dyn Stream<Item = Result<Json, ClientError>> + Send>>;
