//! The claim of a message: of all deliveries of one message, one is worked on (A2A 1.0 section 3.1.1).

use annex_protocol::{ContextId, Message, MessageId, TaskId};

/// The key by which a client's message is recognised when it comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// The conversation as the client named it; empty when it named none.
    pub context: ContextId,
    /// The client's id of the message.
    pub message: MessageId,
    /// A digest of the request, so that another message under the same id is told apart.
    pub digest: [u8; 32],
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The message is the caller's to work on, for this task. It is the task that the caller has named, unless a process
    /// that is gone had claimed the message for another one. Of any number of callers at once, one gets this.
    New(TaskId),
    /// Somebody else looks at the message, and will give it to this task if it is accepted.
    Open(TaskId),
    /// The message came before, and went to this task.
    Repeated(TaskId),
    /// The message came before, and was answered with this message.
    Answered(Box<Message>),
    /// Another message came before under this id.
    Different,
}
