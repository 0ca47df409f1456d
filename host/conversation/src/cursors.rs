//! The progress of push notifications: the events of a task that a receiver has got. For stores that several processes
//! share.

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
    /// The receiver, with an id.
    pub config: TaskPushNotificationConfig,
    /// The number of the last event that was sent or given up.
    pub sent: u64,
    /// The attempts in a row that have failed.
    pub failures: u32,
    /// The replica that may send.
    pub(crate) sender: Replica,
}

/// The outcome of sending an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushProgress {
    /// The number of the last event that was sent or given up.
    pub sent: u64,
    /// The number of failed attempts in a row. After [`MAX_PUSH_FAILURES`] the config gets no more notifications.
    pub failures: u32,
    /// The time to the next attempt, also for a process that takes over.
    pub wait: Duration,
    /// The sender's next step.
    pub then: PushThen,
}

/// The next step of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushThen {
    /// The sender continues.
    GoesOn,
    /// The next process that works on the task sends the rest. If the task already has an unsent event, the sender
    /// continues.
    Rests,
    /// Another process sends the rest.
    Leaves,
    /// The task is finished and all events are sent.
    Ends,
}

/// The cursors of a store that several processes share. A cursor is deleted with its config.
#[async_trait]
pub trait PushCursors: Send + Sync {
    /// Creates the cursor of a stored config; events after number `sent` are to be sent. If `sends` is true, `by`
    /// sends them, otherwise the next process that works on the task. Returns the cursor, or `None` if the config does not
    /// exist.
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

    /// Claims at most `limit` cursors of any task with unsent events, whose sender has ended or has left the rest to
    /// others.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_left(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Claims cursors of tasks that waited and continued, and whose process ended before it claimed the cursors. Reads
    /// all cursors.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_unsent(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Stores the progress of this process. Returns true if this process continues to send: false if the config is
    /// deleted or another process sends.
    ///
    /// # Errors
    /// When the database fails.
    async fn advance(&self, cursor: &PushCursor, progress: &PushProgress) -> Result<bool, StoreError>;
}
