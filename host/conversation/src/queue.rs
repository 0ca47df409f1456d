//! The queue of turns of one conversation: what enters it, and what becomes of a turn whose process is gone.
//!
//! Turns run in the order in which they entered, one at a time. A turn that has to wait is accepted all the same: its task is
//! stored as SUBMITTED, and the text that comes with it is enough for any process to run it.

use std::sync::Arc;

use annex_protocol::TaskId;

use crate::claim::MessageKey;
use crate::fence::{Fence, Replica};
use crate::history::ConversationSnapshot;
use crate::key::ConversationKey;

/// A turn that enters the queue.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The process that works on the turn.
    pub replica: Replica,
    /// The task that the turn works on. One that is not stored yet is stored as SUBMITTED if the turn has to wait.
    pub task: TaskId,
    /// The claim of the message that the turn begins with. The message counts as accepted once its turn waits, or once it is
    /// appended.
    pub message: Option<MessageKey>,
    /// The text with which any process runs the turn, or goes on with it. `None` for a turn that ends with its process.
    pub resume: Option<Arc<str>>,
    /// The most turns that may wait behind the one that runs.
    pub max_waiting: usize,
}

/// The standing of a turn that has entered the queue.
#[derive(Clone, Debug)]
pub enum Entrance {
    /// The turn runs, in the conversation as it is now.
    Runs(Fence, Box<ConversationSnapshot>),
    /// Other turns come first.
    Waits(Fence),
}

/// How a turn leaves the queue without a last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its message was refused. Nobody has heard of the turn, and nothing of it stays.
    Refused,
    /// Another process is to go on with it, as if this one were gone. `has_begun`: what was done here counts as one of the
    /// attempts at the turn.
    HandedOver {
        /// True if the turn may have had effects.
        has_begun: bool,
    },
}

/// The turn that works on a task, as another process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnOfTask {
    /// Its fence.
    pub fence: Fence,
    /// True if the lease of its process holds.
    pub is_alive: bool,
}

/// A turn whose process is gone. The process that took it goes on with it or ends it, and nobody else may.
#[derive(Clone, Debug)]
pub struct LostTurn {
    /// The conversation.
    pub key: ConversationKey,
    /// The task.
    pub task: TaskId,
    /// The fence under which the turn goes on.
    pub fence: Fence,
    /// The text with which it goes on, where there is one.
    pub resume: Option<Arc<str>>,
    /// True if its message is in the log. Where it is not, the text brings the message.
    pub has_begun: bool,
    /// How often a process has begun with it, before this one.
    pub attempts: u32,
    /// True if its task is to be cancelled.
    pub is_cancelled: bool,
}

impl LostTurn {
    /// Times that a turn is begun at most.
    pub const MAX_ATTEMPTS: u32 = 2;

    /// True if the turn may go on: it has a text for that, nobody wants it cancelled, and it was not begun too often.
    ///
    /// A turn that is begun a second time may do things twice; one that only waited was never begun.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        self.resume.is_some() && !self.is_cancelled && self.attempts < Self::MAX_ATTEMPTS
    }
}
