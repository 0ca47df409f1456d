//! The claim of a message. A message may be delivered several times, but only one delivery is processed (A2A 1.0
//! section 3.1.1).

use annex_leases::Replica;
use annex_protocol::{ContextId, Message, MessageId, Owner, TaskId};

use crate::key::{InvalidName, check_key, check_name};
use crate::numbering::next_number;

/// The key by which a client's message is recognised when it comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// The conversation as the client named it; empty if the client named none.
    pub context: ContextId,
    /// The client's id of the message.
    pub message: MessageId,
    /// A digest of the request. Another message under the same id has another digest.
    pub digest: [u8; 32],
}

/// The holder of one claim. Two claims of the same message by the same process have different holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    pub(crate) replica: Replica,
    pub(crate) number: u64,
}

impl Claimant {
    /// The holder of the next claim of the process `replica`.
    #[must_use]
    pub fn new(replica: Replica) -> Self {
        Self { replica, number: next_number() }
    }

    /// The process that decides about the message.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }
}

/// Checks the names of a claim. Clients choose all these names except the task id.
pub(crate) fn check_names(owner: &Owner, message: &MessageKey, task: &TaskId) -> Result<(), InvalidName> {
    check_key("tenant", &owner.tenant)?;
    check_key("principal", &owner.principal)?;
    check_key("context id", message.context.as_str())?;
    check_name("message id", message.message.as_str())?;
    check_name("task id", task.as_str())
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The caller processes the message for this task. This is the task that the caller has named, unless a dead
    /// process had claimed the message for another task. Only one of several concurrent callers gets this result.
    New(TaskId),
    /// Another caller is deciding about the message. If that caller accepts the message, the message belongs to this task.
    Open(TaskId),
    /// The message came before, and was processed for this task.
    Repeated(TaskId),
    /// The message came before, and this message is its answer.
    Answered(Box<Message>),
    /// A different message with the same id came before.
    Different,
}
