//! The stages of a turn.

use std::mem;
use std::sync::Arc;

use annex_protocol::A2aError;
use annex_session::{Event, Following};
use tokio::sync::oneshot;

use super::{Outcome, Turn};
use crate::deduplication::FirstDelivery;
use crate::tasks::record::TaskRecord;

/// The channel to the client's request, which waits until the first events are stored.
pub(crate) type Client = oneshot::Sender<Result<Outcome, A2aError>>;

/// The stage that a turn has reached.
///
/// ```text
///              Accepted
///                 |  extensions asked, message stored
///        +--------+--------+------------------------- refused: Taskless
///        | no task yet     | joins a task
///        v                 v
///     Opening           Joined
///        |  |              |
///        |  |              | the first events answer the client and are stored
///        |  |              v
///        |  +---------> Working ------ the agent ends, or is ended ----> Ended
///        |  task created
///        v            (if the agent answers an existing task with a message, Joined leads to Working)
///     Taskless ----------------------- the agent ends, or is ended ----> Ended
///  answered with a message, or refused
/// ```
pub(crate) enum Stage {
    /// The message is accepted. No task has it yet, and the session gets it only at the end of this stage.
    Accepted {
        user_event: Option<Box<UserEvent>>,
        task: Option<Arc<TaskRecord>>,
        client: Client,
        delivery: Option<FirstDelivery>,
    },
    /// No task exists yet. The message can still be refused or answered with a message.
    Opening { client: Client, delivery: Option<FirstDelivery> },
    /// The message has joined an existing task.
    Joined { task: Arc<TaskRecord>, client: Client },
    /// The client has got the task.
    Working { task: Arc<TaskRecord> },
    /// No task will be created: the message was answered with a message, or refused.
    Taskless,
    /// Nothing more will be stored.
    Ended,
}

/// The user's message as an event for the session.
pub(crate) struct UserEvent {
    pub(crate) event: Event,
    pub(crate) following: Following,
}

impl Stage {
    /// The task, if it exists already.
    pub(super) fn task(&self) -> Option<&Arc<TaskRecord>> {
        match self {
            Self::Accepted { task, .. } => task.as_ref(),
            Self::Joined { task, .. } | Self::Working { task } => Some(task),
            Self::Opening { .. } | Self::Taskless | Self::Ended => None,
        }
    }

    /// True if the task is finished, possibly by another process.
    pub(super) fn is_finished(&self) -> bool {
        self.task().is_some_and(|task| task.is_finished())
    }

    /// Ends the turn's stages and returns the task.
    pub(super) fn take_task(&mut self) -> Option<Arc<TaskRecord>> {
        match mem::replace(self, Self::Ended) {
            Self::Joined { task, .. } | Self::Working { task } => Some(task),
            // There is no task in these stages, or the client has not got it yet.
            Self::Accepted { .. } | Self::Opening { .. } | Self::Taskless | Self::Ended => None,
        }
    }
}

impl Turn {
    /// Sends the error to the client, which gets no task. A refused message is treated as if it had never arrived.
    pub(super) fn refuse(&mut self, error: A2aError) {
        match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Accepted { client, .. } | Stage::Opening { client, .. } => {
                // A client that has hung up needs no answer.
                let _ = client.send(Err(error));
            }
            // The task existed before, and continues.
            Stage::Joined { task, client } => {
                let _ = client.send(Err(error));
                self.stage = Stage::Working { task };
            }
            // The client has already got its task.
            stage @ (Stage::Working { .. } | Stage::Taskless | Stage::Ended) => self.stage = stage,
        }
    }

    /// Removes a message that could not be stored: the conversation stays as it was, and no task is created.
    pub(super) fn roll_back(&mut self, error: A2aError) {
        self.context.session.drop_staged();
        self.pending.clear();
        // An event that was not stored may have pinned versions for the task.
        self.tasks.pins().release(&self.context.task_id);
        self.refuse(error);
    }
}
