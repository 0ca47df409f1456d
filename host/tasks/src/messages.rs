//! Messages of clients that are remembered, so that a repeated one is recognised.

use annex_protocol::{ContextId, Message, MessageId, TaskId};

/// The key by which a client's message is recognised when it comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// The conversation as the client named it; empty when it named none.
    pub context: ContextId,
    /// The client's id of the message.
    pub message: MessageId,
    /// A digest of the request, to detect a different message under the same id.
    pub digest: [u8; 32],
}

/// The state of a message id in the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Remembered {
    /// The message is new, and the caller must process it. Among concurrent callers exactly one gets this result.
    New,
    /// Another process claimed the message for this task and ended before it created the task. The caller must process
    /// the message, as this task.
    Left(TaskId),
    /// Another process is checking the message. If the message is accepted, its task is this one.
    Elsewhere(TaskId),
    /// This process has claimed the message for this task, and the task does not have the message. Unless the caller is
    /// processing the message already, the caller must process it, as this task.
    Own(TaskId),
    /// The same message was remembered with this task.
    Same(TaskId),
    /// The same message was remembered, and answered with a message.
    Answered(Box<Message>),
    /// Another message was remembered under this id.
    Different,
}
