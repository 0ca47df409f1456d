//! The queue of turns of one conversation, and the turns of dead processes.
//!
//! Turns run one at a time, in the order of their arrival. The message of a waiting turn is accepted: its task is
//! stored as SUBMITTED, and any process can run the turn from its stored [`Submission::request`].

use std::sync::Arc;

use annex_leases::Replica;
use annex_protocol::{TaskId, Timestamp};

use crate::claim::MessageKey;
use crate::fence::Fence;
use crate::history::ConversationSnapshot;
use crate::key::ConversationKey;

/// A turn that enters the queue.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The process that works on the turn.
    pub replica: Replica,
    /// The task of the turn. A new task is stored as SUBMITTED if the turn has to wait.
    pub task: TaskId,
    /// The time since which a new task is SUBMITTED.
    pub since: Timestamp,
    /// The claim of the message of the turn. The message is accepted when the turn waits, or at the first append.
    pub message: Option<MessageKey>,
    /// What any process needs to run the turn, as text. Stored while the turn waits. `None` for a turn that no other
    /// process may run.
    pub request: Option<Arc<str>>,
    /// What another process needs to continue the turn after it has begun, as text. `None` for a turn that fails when
    /// its process ends.
    pub resume: Option<Arc<str>>,
    /// The limit on the turns that wait behind the running turn.
    pub max_waiting: usize,
}

impl Submission {
    /// A turn without a message that begins now and ends with its process, and that never waits.
    #[must_use]
    pub fn of_process(replica: Replica, task: TaskId) -> Self {
        let since = Timestamp::now();
        Self { replica, task, since, message: None, request: None, resume: None, max_waiting: 0 }
    }
}

/// The result of entering the queue.
#[derive(Clone, Debug)]
pub enum Entrance {
    /// The turn runs, in the conversation as it is now.
    Runs(Fence, Box<ConversationSnapshot>),
    /// The turn waits, because other turns come first.
    Waits(Fence),
}

/// The ways to leave the queue without a last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The message was refused. The turn leaves no trace, unless it has begun. A turn that has begun is handed over instead,
    /// because its message is stored although its process did not learn this.
    Refused,
    /// Another process continues the turn, as if this process had died.
    HandedOver {
        /// True if the work of this process counts as one of the attempts at the turn.
        has_begun: bool,
    },
}

impl Departure {
    /// Returns the departure that the store makes. A refused turn that has begun according to the store is handed over.
    pub(crate) fn of_turn(self, has_begun: bool) -> Self {
        if self == Self::Refused && has_begun { Self::HandedOver { has_begun } } else { self }
    }
}

/// The turn that works on a task, as another process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnOfTask {
    /// The fence of the turn.
    pub fence: Fence,
    /// True if the lease of the process that works on the turn is valid.
    pub is_alive: bool,
}

/// A turn of a dead process, after this process has taken the turn. Only this process may continue or end the turn.
#[derive(Clone, Debug)]
pub struct LostTurn {
    /// The conversation.
    pub key: ConversationKey,
    /// The task.
    pub task: TaskId,
    /// The new fence of the turn.
    pub fence: Fence,
    /// What the turn was stored with: [`Submission::resume`] for a turn that has begun, [`Submission::request`] for a
    /// turn that has only waited.
    pub resume: Option<Arc<str>>,
    /// True if the message of the turn is in the log. Otherwise `resume` contains the message.
    pub has_begun: bool,
    /// The number of earlier processes that have begun the turn. For a turn that has only waited, the number of earlier
    /// processes that have taken it over.
    pub attempts: u32,
    /// True if the task of the turn is to be cancelled.
    pub is_cancelled: bool,
}

impl LostTurn {
    /// The maximum number of times that a turn is begun.
    pub const MAX_ATTEMPTS: u32 = 2;
    /// The maximum number of times that a turn which has not begun is taken over. The number allows for processes that
    /// end by chance, and stops a message that ends each process that takes its turn.
    pub const MAX_TAKES: u32 = 5;

    /// True if another process may continue the turn: `resume` is set, the turn was not cancelled, and it has attempts
    /// left.
    ///
    /// A second attempt may repeat effects of the first attempt. A turn that has only waited has had no effect.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        let most = if self.has_begun { Self::MAX_ATTEMPTS } else { Self::MAX_TAKES };
        self.resume.is_some() && !self.is_cancelled && self.attempts < most
    }
}
