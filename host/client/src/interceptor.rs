//! Interceptors, which see each call before it is sent, and each answer and event.

use annex_protocol::{AgentCard, ExtensionUri, Message, Metadata, StreamResponse};
use async_trait::async_trait;
use http::Extensions;

use crate::{Operation, ServiceParameters};

/// The reason for an interceptor's refusal.
pub type InterceptorError = Box<dyn std::error::Error + Send + Sync>;

/// A call before it is sent.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutgoingCall<'a> {
    /// The operation that is called.
    pub operation: &'a Operation,
    /// The agent's card.
    pub card: &'a AgentCard,
    /// The URL of the agent's card.
    pub card_url: &'a str,
    /// The message, if the operation sends one.
    pub message: Option<&'a mut Message>,
    /// The metadata of the request, for calls that send a message and for CancelTask. `None` for calls whose request has no
    /// metadata.
    pub metadata: Option<&'a mut Metadata>,
    /// Extensions and header fields, to which interceptors add. If two interceptors set the same header field, the call
    /// fails.
    pub parameters: &'a mut ServiceParameters,
    /// Values that interceptors keep from before the call until its end.
    pub context: &'a mut Extensions,
}

/// An agent's answer, or one event of a stream.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// The operation that was called.
    pub operation: &'a Operation,
    /// The agent's card.
    pub card: &'a AgentCard,
    /// The extensions that the agent reports as active.
    pub active: &'a [ExtensionUri],
    /// The event, or the answer if it is a task or a message. `None` for other answers, such as a page of tasks.
    pub event: Option<&'a StreamResponse>,
    /// The values that interceptors stored before the call was sent.
    pub context: &'a mut Extensions,
}

/// Sees calls and answers, for example to implement the client's side of an extension.
#[async_trait]
pub trait Interceptor: Send + Sync {
    /// Called once before each call, in the order of the interceptors.
    ///
    /// # Errors
    /// An error refuses the call: nothing is sent, and the following interceptors are not called.
    async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        let _ = call;
        Ok(())
    }

    /// Called after each answer, and for each event of a stream, before the caller gets the answer or the event. The
    /// interceptors run in reverse order. Errors of the agent are not shown to interceptors.
    ///
    /// # Errors
    /// An error takes the place of the answer or event, and ends the stream.
    async fn after(&self, incoming: &mut Incoming<'_>) -> Result<(), InterceptorError> {
        let _ = incoming;
        Ok(())
    }
}
