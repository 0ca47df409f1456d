//! Hints, their readers, and the trait [`Wake`], which sends hints to other processes.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

/// The maximum number of batches of hints that wait for a slow reader. If more batches wait, the reader loses hints.
const BEHIND: usize = 1_024;

/// The reasons why wake-ups do not work.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The connection that listens fails.
    #[error("there is no connection to listen on")]
    Connect(#[source] sqlx::Error),
    /// The greeting of this process cannot be sent.
    #[error("the database does not notify")]
    Notify(#[source] sqlx::Error),
    /// The listening connection gets no notifications: a pooler changes it between statements, or it leads to another database.
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
    /// The number of the last event. With 0, a reader looks for any change of the task.
    pub seq: u64,
}

/// A notice to a reader of hints.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Hints, in the order in which they came.
    Hints(Arc<[Hint]>),
    /// The loss of some hints. The reader has to read all its tasks again.
    Lost,
}

/// A way to send hints to other processes and to receive the hints of other processes.
pub trait Wake: Send + Sync + 'static {
    /// Sends a hint to the other processes: task `id` has an event with the number `seq`. Returns at once. The hint may be lost
    /// without an error.
    fn tell(&self, id: &str, seq: u64);

    /// Returns a reader of all hints that arrive after this call.
    fn hints(&self) -> Hints;
}

/// The wake-ups of a process whose store no other process uses. Hints are neither sent nor received.
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
    /// The receiver of notices. `None` if no other process uses the store.
    receiver: Option<broadcast::Receiver<Notice>>,
}

impl Hints {
    /// Waits for the next notice. No notice is lost if the future is dropped.
    pub async fn next(&mut self) -> Notice {
        let Some(receiver) = &mut self.receiver else { return pending().await };
        match receiver.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => Notice::Lost,
            Err(RecvError::Closed) => pending().await,
        }
    }

    /// Resolves when a hint for task `id` comes, or when such a hint may have been lost.
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

/// Sends notices to all readers of this process.
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
