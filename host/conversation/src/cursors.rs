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

/// The progress of a sender after an event, in the form in which the store keeps it.
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
    /// No event is left, so the sender stops. The next process that works on the task sends later events. If the task already
    /// has a later event, the sender continues instead.
    Rests,
    /// The sender stops, and another process sends the remaining events.
    Leaves,
    /// The task is finished and all events are sent.
    Ends,
}

/// The cursors of a store that several processes share. A cursor is deleted with its config.
#[async_trait]
pub trait PushCursors: Send + Sync {
    /// Creates the cursor of a stored config, so that the receiver gets the events after number `sent`. If `sends` is true,
    /// `by` sends these events. Otherwise the next process that works on the task sends them. Returns the cursor, or `None` if
    /// the config does not exist.
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

    /// Makes `by` the sender to each receiver of the task, unless another living process sends to that receiver. Returns the
    /// cursors that `by` got.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim(&self, task: &TaskId, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Makes `by` the sender of at most `limit` cursors that have unsent events and no sender. The cursors may belong to any
    /// task. A cursor has no sender if its sender has ended, or has left the remaining events to other processes.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_left(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError>;

    /// Makes `by` the sender of cursors like [`claim_left`](Self::claim_left), and also of cursors that `claim_left` misses: a
    /// task waited, its next turn began, and the process of that turn ended before it claimed the cursors. Reads all cursors,
    /// so the call is slow.
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
