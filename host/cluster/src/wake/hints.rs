//! What is told, how it is heard, and the trait of all ways in which that goes.

use std::error::Error;
use std::future::pending;
use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

/// Batches of hints that a reader may be behind before it has lost some.
const BEHIND: usize = 1_024;

/// The reasons for which a process cannot be woken.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// There is no connection to listen on.
    #[error("there is no connection to listen on")]
    Connect(#[source] sqlx::Error),
    /// The database fails.
    #[error("the database does not notify")]
    Notify(#[source] sqlx::Error),
    /// The connection that listens is another one by each statement, or one to another database.
    #[error(
        "the connection that listens hears nothing: it goes through a pooler that shares connections between transactions, \
         such as PgBouncer with pool_mode = transaction, or to another database than that of the tasks"
    )]
    Deaf,
    /// NATS is not reached.
    #[error("NATS is not reached")]
    Nats(#[source] Box<dyn Error + Send + Sync>),
    /// This process does not hear what it publishes.
    #[error("NATS does not let this user publish and subscribe to {subject}")]
    Forbidden {
        /// The subject.
        subject: &'static str,
    },
}

/// What was told: the id of a task, and the number of its last event, or 0 where something else of it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The id.
    pub id: String,
    /// The number.
    pub seq: u64,
}

/// What is heard of other processes.
#[derive(Clone, Debug)]
pub enum Heard {
    /// What they have told since.
    Hints(Arc<[Hint]>),
    /// Some was not heard: all that is followed is to be read again.
    Lost,
}

/// The way to tell other processes, and to hear of them.
pub trait Wake: Send + Sync + 'static {
    /// Tells the others that `id` has an event with this number. Returns at once, and nobody hears whether it was told.
    fn tell(&self, id: &str, seq: u64);

    /// All that the others tell from now on.
    fn hints(&self) -> Hints;
}

/// One process: there is nobody to tell and nothing to hear.
#[derive(Clone, Copy, Debug)]
pub struct Local;

impl Wake for Local {
    fn tell(&self, _id: &str, _seq: u64) {}

    fn hints(&self) -> Hints {
        Hints { receiver: None }
    }
}

/// What other processes tell, for one reader.
#[derive(Debug)]
pub struct Hints {
    /// `None` where nothing is ever heard.
    receiver: Option<broadcast::Receiver<Heard>>,
}

impl Hints {
    /// The next that is heard. Giving up the wait loses nothing.
    pub async fn heard(&mut self) -> Heard {
        let Some(receiver) = &mut self.receiver else { return pending().await };
        match receiver.recv().await {
            Ok(heard) => heard,
            Err(RecvError::Lagged(_)) => Heard::Lost,
            Err(RecvError::Closed) => pending().await,
        }
    }

    /// Resolves when something is told of `id`, or may have been.
    pub async fn of(&mut self, id: &str) {
        loop {
            match self.heard().await {
                Heard::Hints(hints) if hints.iter().any(|hint| hint.id == id) => return,
                Heard::Hints(_) => {}
                Heard::Lost => return,
            }
        }
    }
}

/// Hands what is heard to all readers of this process.
#[derive(Clone, Debug)]
pub(super) struct Readers(broadcast::Sender<Heard>);

impl Readers {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }

    pub(super) fn hints(&self) -> Hints {
        Hints { receiver: Some(self.0.subscribe()) }
    }

    pub(super) fn hear(&self, heard: Heard) {
        // Without readers nobody wants to know.
        let _ = self.0.send(heard);
    }
}
