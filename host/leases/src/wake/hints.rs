//! Hints, their readers, and the trait for all ways in which hints reach other processes.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

/// The batches that wait for a slow reader. A reader that is further behind loses hints.
const BEHIND: usize = 1_024;

/// The reasons why wake-ups do not work.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The connection that listens fails.
    #[error("there is no connection to listen on")]
    Connect(#[source] sqlx::Error),
    /// The database fails.
    #[error("the database does not notify")]
    Notify(#[source] sqlx::Error),
    /// The connection that listens changes between statements, or leads to another database.
    #[error(
        "the connection that listens hears nothing: it goes through a pooler that shares connections between transactions, \
         such as PgBouncer with pool_mode = transaction, or to another database than that of the tasks"
    )]
    Deaf,
}

/// A hint that a task changed in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The id of the task.
    pub id: String,
    /// The number of the last event; 0 where another part of the task changed.
    pub seq: u64,
}

/// News from other processes.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Hints, in the order in which they came.
    Hints(Arc<[Hint]>),
    /// The loss of some hints. The reader has to read all its tasks again.
    Lost,
}

/// A way to send hints to other processes and to receive theirs.
pub trait Wake: Send + Sync + 'static {
    /// Tells the other processes that task `id` has an event of this number. Returns at once. Hints may be lost without an error.
    fn tell(&self, id: &str, seq: u64);

    /// A reader of all hints from now on.
    fn hints(&self) -> Hints;
}

/// The wake-ups of a process that has its store alone: no hint leaves it, and none comes.
#[derive(Clone, Copy, Debug)]
pub struct LocalWake;

impl Wake for LocalWake {
    fn tell(&self, _id: &str, _seq: u64) {}

    fn hints(&self) -> Hints {
        Hints { receiver: None }
    }
}

/// The hints of other processes, for one reader.
#[derive(Debug)]
pub struct Hints {
    /// `None` in a process without others.
    receiver: Option<broadcast::Receiver<Notice>>,
}

impl Hints {
    /// Waits for the next notice. Dropping the future loses none.
    pub async fn next(&mut self) -> Notice {
        let Some(receiver) = &mut self.receiver else { return pending().await };
        match receiver.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => Notice::Lost,
            Err(RecvError::Closed) => pending().await,
        }
    }

    /// Resolves when a hint for task `id` comes, or may be lost.
    pub async fn of(&mut self, id: &str) {
        loop {
            match self.next().await {
                Notice::Hints(hints) if hints.iter().any(|hint| hint.id == id) => return,
                Notice::Hints(_) => {}
                Notice::Lost => return,
            }
        }
    }
}

/// The sending end to all readers of this process.
#[derive(Clone, Debug)]
pub(super) struct Readers(broadcast::Sender<Notice>);

impl Readers {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }

    pub(super) fn hints(&self) -> Hints {
        Hints { receiver: Some(self.0.subscribe()) }
    }

    pub(super) fn send(&self, notice: Notice) {
        // Sending fails where no reader exists, and then no reader misses the notice.
        let _ = self.0.send(notice);
    }
}
