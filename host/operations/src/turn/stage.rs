//! The stages of a turn.

use std::mem;
use std::sync::Arc;

use annex_protocol::A2aError;
use annex_session::{Event, Following};
use tokio::sync::oneshot;

use super::{Outcome, Turn};
use crate::deduplication::FirstDelivery;
use crate::tasks::record::TaskRecord;

/// Whoever sent the message waits here until the first events are stored.
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
///        |  |              | the first events: the client is told, they are stored
///        |  |              v
///        |  +---------> Working ------ the agent ends, or is ended ----> Ended
///        |  task created
///        v            (an answer of a task that was there leads from Joined to Working)
///     Taskless ----------------------- the agent ends, or is ended ----> Ended
///  answered with a message, or refused
/// ```
pub(crate) enum Stage {
    /// The message was taken. No task knows of it, and the session only at the end of this stage.
    Accepted {
        user_event: Option<Box<UserEvent>>,
        task: Option<Arc<TaskRecord>>,
        client: Client,
        delivery: Option<FirstDelivery>,
    },
    /// There is no task yet. The message can still be refused, and answered with a message.
    Opening { client: Client, delivery: Option<FirstDelivery> },
    /// The message belongs to a task that was there before.
    Joined { task: Arc<TaskRecord>, client: Client },
    /// The client knows the task.
    Working { task: Arc<TaskRecord> },
    /// There will be no task: the message was answered with a message, or refused.
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
    /// The task, once there is one.
    pub(super) fn task(&self) -> Option<&Arc<TaskRecord>> {
        match self {
            Self::Accepted { task, .. } => task.as_ref(),
            Self::Joined { task, .. } | Self::Working { task } => Some(task),
            Self::Opening { .. } | Self::Taskless | Self::Ended => None,
        }
    }

    /// True if the task is finished. Somebody else may have finished it.
    pub(super) fn is_finished(&self) -> bool {
        self.task().is_some_and(|task| task.is_finished())
    }

    /// Ends the stages and takes the task out of them.
    pub(super) fn take_task(&mut self) -> Option<Arc<TaskRecord>> {
        match mem::replace(self, Self::Ended) {
            Self::Joined { task, .. } | Self::Working { task } => Some(task),
            // Nobody knows of this turn yet.
            Self::Accepted { .. } | Self::Opening { .. } | Self::Taskless | Self::Ended => None,
        }
    }
}

impl Turn {
    /// Tells the client that there will be no task. A message that was refused is as if it had never come.
    pub(super) fn refuse(&mut self, error: A2aError) {
        match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Accepted { client, .. } | Stage::Opening { client, .. } => {
                // A client that has gone away needs no answer.
                let _ = client.send(Err(error));
            }
            // The task was there before, and goes on.
            Stage::Joined { task, client } => {
                let _ = client.send(Err(error));
                self.stage = Stage::Working { task };
            }
            // The client has been told of its task already.
            stage @ (Stage::Working { .. } | Stage::Taskless | Stage::Ended) => self.stage = stage,
        }
    }

    /// The user's message could not be stored: the conversation is as if it had never come, and there is no task.
    pub(super) fn roll_back(&mut self, error: A2aError) {
        self.context.session.drop_staged();
        self.pending.clear();
        // An event that was not stored may have pinned versions for the task.
        self.tasks.pins().release(&self.context.task_id);
        self.refuse(error);
    }
}
