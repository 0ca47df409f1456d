//! Messages of clients that are remembered, so that a repeated one is recognised.

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

/// Tells whether a message was seen before.
#[derive(Clone, Debug, PartialEq)]
pub enum Remembered {
    /// Not before: it is the caller's to work on. Of any number of callers at once, one is told this.
    New,
    /// Another process had taken it to begin this task, and is gone before it did: it is the caller's to work on, as this
    /// task.
    Left(TaskId),
    /// Another process looks at it, and will give it to this task if it takes the message.
    Elsewhere(TaskId),
    /// This process has taken it for this task, and the task does not have it. Unless the caller is working on it somewhere
    /// else, it is the caller's to work on, as this task.
    Own(TaskId),
    /// The same message was remembered with this task.
    Same(TaskId),
    /// The same message was remembered, and answered with a message.
    Answered(Box<Message>),
    /// Another message was remembered under this id.
    Different,
}
