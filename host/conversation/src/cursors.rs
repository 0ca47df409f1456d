//! The progress of push notifications: the number of events that each receiver of a task has got. Only stores that
//! several processes share record the progress.

use std::time::Duration;

use annex_leases::Replica;
use annex_protocol::{Owner, TaskId, TaskPushNotificationConfig};
use async_trait::async_trait;

use crate::error::StoreError;

/// The number of failed attempts in a row after which a config gets no more notifications.
pub const MAX_PUSH_FAILURES: u32 = 5;

/// The right to send the events of a task to one receiver. One process has the right at a time, until its lease ends.
#[derive(Clone, Debug, PartialEq)]
pub struct PushCursor {
    /// The owner of the task.
    pub owner: Owner,
    /// The task.
    pub task: TaskId,
    /// The config of the receiver. It has an id.
    pub config: TaskPushNotificationConfig,
    /// The number of the last event that was sent or given up.
    pub sent: u64,
    /// The number of failed attempts in a row.
    pub failures: u32,
    /// The replica that may send.
    pub(crate) sender: Replica,
}

/// The outcome of sending an event, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushProgress {
    /// The number of the last event that was sent or given up.
    pub sent: u64,
    /// The number of failed attempts in a row. After [`MAX_PUSH_FAILURES`] the config gets no more notifications.
    pub failures: u32,
    /// The time until the next attempt. A process that takes the cursor over also waits that long.
    pub wait: Duration,
    /// The sender's next step.
    pub then: PushThen,
}

/// The next step of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushThen {
    /// The sender continues.
    GoesOn,
    /// The sender stops, because no event is left. The next process that works on the task sends later events. If the
    /// task already has a later event, the sender continues.
    Rests,
    /// The sender stops, and another process sends the remaining events.
    Leaves,
    /// The task is finished and all events are sent.
    Ends,
}

/// The cursors of a store that several processes share. A cursor is deleted with its config.
#[async_trait]
pub trait PushCursors: Send + Sync {
    /// Creates the cursor of a stored config, so that the receiver gets the events after number `sent`. If `sends` is
    /// true, `by` sends them, otherwise the next process that works on the task. Returns the cursor, or `None` if the
    /// config does not exist.
    ///
    /// # Errors
    /// When the database fails.
    async fn open(
        &self,
        task: &TaskId,
        config: &str,
        sent: u64,
        (by, sends): (&Replica, bool),
    ) -> Result<Option<PushCursor>, StoreError>;

    /// Makes `by` the sender to all receivers of the task that no other living process sends to.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim(&self, task: &TaskId, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Makes `by` the sender of at most `limit` cursors, of any task, that have unsent events and no sender: their
    /// sender has ended, or has left the remaining events to other processes.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_left(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Like [`claim_left`](Self::claim_left), and also finds cursors of tasks that waited and continued. The process of
    /// such a task ended before it claimed the cursors. Reads all cursors.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_unsent(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Stores the progress of this process. Returns true if this process continues to send, and false if the config is
    /// deleted or another process sends.
    ///
    /// # Errors
    /// When the database fails.
    async fn advance(&self, cursor: &PushCursor, progress: &PushProgress) -> Result<bool, StoreError>;
}
