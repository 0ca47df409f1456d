//! How far the events of a task have been sent to a receiver of push notifications, where several processes can send them.

use std::time::Duration;

use annex_protocol::{Owner, TaskId, TaskPushNotificationConfig};
use async_trait::async_trait;

use crate::StoreError;

/// With so many attempts in a row that failed, nobody sends to a config any more.
pub const MAX_PUSH_FAILURES: u32 = 5;

/// Leave to send the events of a task to one receiver. One process has it at a time, as long as it lives.
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
    pub(crate) sender: String,
}

/// What became of an event that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushProgress {
    /// The number of the last event that was sent or given up.
    pub sent: u64,
    /// The attempts in a row that have failed. With [`MAX_PUSH_FAILURES`] nobody sends any more.
    pub failures: u32,
    /// The time to the next attempt, also for a process that takes over.
    pub wait: Duration,
    /// What follows.
    pub then: PushThen,
}

/// What a sender does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushThen {
    /// It goes on.
    GoesOn,
    /// It leaves the rest to whoever goes on with the task, unless there is an event already that was not sent.
    Rests,
    /// It leaves the rest to others.
    Leaves,
    /// The task is finished and there is no more.
    Ends,
}

/// The cursors of a store that several processes have. A cursor goes with its config.
#[async_trait]
pub trait PushCursors: Send + Sync {
    /// Begins to send the events behind number `sent` to a config that is stored. This process sends them if it `sends`,
    /// else the next one that goes on with the task. Returns its cursor, or `None` when there is no such config.
    ///
    /// # Errors
    /// When the database fails.
    async fn open(
        &self,
        task: &TaskId,
        config: &str,
        (sent, sends): (u64, bool),
    ) -> Result<Option<PushCursor>, StoreError>;

    /// Makes this process the sender to all receivers of the task that no other living process sends to.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim(&self, task: &TaskId) -> Result<Vec<PushCursor>, StoreError>;

    /// The same with at most `limit` of those that have events to be sent, of any task: their sender is gone, or has left them.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_left(&self, limit: usize) -> Result<Vec<PushCursor>, StoreError>;

    /// The same with those of a task that waited, that has gone on and whose process was gone before it claimed them. Looks
    /// through all cursors. Configs of a version without cursors get theirs.
    ///
    /// # Errors
    /// When the database fails.
    async fn claim_unsent(&self, limit: usize) -> Result<Vec<PushCursor>, StoreError>;

    /// Stores how far this process has come. Returns whether it goes on: not when the config is gone or another process
    /// sends.
    ///
    /// # Errors
    /// When the database fails.
    async fn advance(&self, cursor: &PushCursor, progress: &PushProgress) -> Result<bool, StoreError>;
}
