//! The stages of a turn, as its client sees it.

use std::mem;

use annex_protocol::A2aError;
use tokio::sync::oneshot;

use super::{Outcome, Turn};

/// The channel to the client's request. The request waits for the first events of the turn.
pub(crate) type Client = oneshot::Sender<Result<Outcome, A2aError>>;

/// The stage that a turn has reached. The message is stored in all of them, and so is the task.
///
/// ```text
///   new task        waiting task       accepted before, or without a client
///      |                 |                        |
///      v                 v                        |
///   Opening           Joined                      |
///      |  |              | the first events       |
///      |  |              v                        v
///      |  +---------> Working <-------------------+
///      |                 |
///      | answered with a message, or refused: the task is deleted
///      v                 v  the end is stored
///    Ended <-------------+
/// ```
pub(crate) enum Stage {
    /// The message has opened its task. The message can still be refused or answered with a message.
    Opening { client: Client },
    /// The message has joined a task that waited.
    Joined { client: Client },
    /// The client has got the task.
    Working,
    /// Nothing more will be stored.
    Ended,
}

impl Turn {
    /// Takes the client out of the stage, if the client has no answer yet. The stage is then [`Stage::Working`].
    pub(super) fn take_client(&mut self) -> Option<Client> {
        match mem::replace(&mut self.stage, Stage::Working) {
            Stage::Opening { client } | Stage::Joined { client } => Some(client),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Sends the error to the client, if the client has no answer yet.
    pub(super) fn tell_error(&mut self, error: A2aError) {
        if let Some(client) = self.take_client() {
            // A client that has hung up needs no answer.
            let _ = client.send(Err(error));
        }
    }
}
