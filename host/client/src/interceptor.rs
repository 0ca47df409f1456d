//! Interceptors, which see each call before it is sent, and all that comes back.

use annex_protocol::{AgentCard, ExtensionUri, Message, Metadata, StreamResponse};
use async_trait::async_trait;
use http::Extensions;

use crate::{Operation, ServiceParameters};

/// The reason that an interceptor refuses.
pub type InterceptorError = Box<dyn std::error::Error + Send + Sync>;

/// A call that is about to be sent.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutgoingCall<'a> {
    /// The operation that the agent is asked for.
    pub operation: &'a Operation,
    /// The card of the agent that is asked.
    pub card: &'a AgentCard,
    /// The URL of that card.
    pub card_url: &'a str,
    /// The message, when the operation sends one.
    pub message: Option<&'a mut Message>,
    /// Metadata of the request, when the operation has it: those that send a message, and CancelTask.
    pub metadata: Option<&'a mut Metadata>,
    /// Extensions and header fields. Interceptors add to them; two that set one header field fail the call.
    pub parameters: &'a mut ServiceParameters,
    /// The values that interceptors keep for themselves until the call is over.
    pub context: &'a mut Extensions,
}

/// Something that an agent answered: a whole answer, or one event of a stream.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// The operation that the agent was asked for.
    pub operation: &'a Operation,
    /// The card of the agent that was asked.
    pub card: &'a AgentCard,
    /// The extensions that the agent says were active.
    pub active: &'a [ExtensionUri],
    /// The event; a task or a message when the answer is one. `None` when it is something else, such as a page of tasks.
    pub event: Option<&'a StreamResponse>,
    /// The values that interceptors have kept since the call was sent.
    pub context: &'a mut Extensions,
}

/// Sees calls and answers, for instance to take the client's part in an extension.
#[async_trait]
pub trait Interceptor: Send + Sync {
    /// Runs once before each call, in the order of the interceptors.
    ///
    /// # Errors
    /// Any error refuses the call: nothing is sent, and interceptors that follow do not run.
    async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        let _ = call;
        Ok(())
    }

    /// Runs once after each answer and for each event of a stream, in reverse order, before the caller gets to see it.
    /// Errors of the agent are not shown.
    ///
    /// # Errors
    /// Any error takes the place of the answer, and ends the stream.
    async fn after(&self, incoming: &mut Incoming<'_>) -> Result<(), InterceptorError> {
        let _ = incoming;
        Ok(())
    }
}
