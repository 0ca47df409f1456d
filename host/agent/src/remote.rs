//! The parts of a request that an upstream agent needs beside the message, and the place for its own ids of
//! conversations and tasks.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use annex_protocol::{ExtensionUri, TaskId};
use async_trait::async_trait;
use http::HeaderMap;

/// The reason that ids cannot be read or stored.
pub type UpstreamIdsError = Box<dyn Error + Send + Sync>;

/// The ids that the conversation and the task of a turn have at an upstream agent: one text for each, which is no state and
/// which nobody else sees. They live as long as the conversation and the task, and as durably.
#[async_trait]
pub trait UpstreamIds: Send + Sync {
    /// The ids of the conversation.
    async fn of_context(&self) -> Result<Option<String>, UpstreamIdsError>;

    /// The ids of a task of the caller; `None` for a task of somebody else.
    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, UpstreamIdsError>;

    /// Replaces the ids of the conversation.
    async fn store_context(&self, ids: &str) -> Result<(), UpstreamIdsError>;

    /// Replaces the ids of the turn's task.
    async fn store_task(&self, ids: &str) -> Result<(), UpstreamIdsError>;
}

/// The beginning of a turn at an agent elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnStart {
    /// The message is sent.
    #[default]
    Message,
    /// A process that is gone has sent the message. Nothing is sent, and what the agent made of the message is followed.
    LostTurn,
    /// The task waited for its client, and has gone on at the agent without a message. Nothing is sent, and the task is
    /// followed.
    WaitingTask,
}

/// The parts of a request that an agent elsewhere needs beside its message.
pub struct UpstreamContext {
    /// The extensions that the caller asked for and that are the agent's own.
    pub extensions: Vec<ExtensionUri>,
    /// The header fields of the request; `None` where the binding shows none.
    pub headers: Option<Arc<HeaderMap>>,
    /// Media types that the caller takes.
    pub accepted_output_modes: Vec<String>,
    /// Metadata keys that are for this server's extensions, not for the agent.
    pub own_keys: Vec<String>,
    /// The ids of conversations and tasks at the agent.
    pub ids: Arc<dyn UpstreamIds>,
    /// The beginning of the turn.
    pub begins_with: TurnStart,
    active: Mutex<Vec<ExtensionUri>>,
}

impl UpstreamContext {
    /// A request of which only the ids are known.
    pub fn new(ids: Arc<dyn UpstreamIds>) -> Self {
        Self {
            extensions: Vec::new(),
            headers: None,
            accepted_output_modes: Vec::new(),
            own_keys: Vec::new(),
            ids,
            begins_with: TurnStart::Message,
            active: Mutex::default(),
        }
    }

    /// Takes note of the extensions that the agent says were active. Only those that it was asked for count.
    pub fn set_active(&self, active: &[ExtensionUri]) {
        // An agent elsewhere could otherwise name extensions in our answer that nobody activated.
        let asked = active.iter().filter(|uri| self.extensions.contains(uri)).cloned();
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = asked.collect();
    }

    /// The extensions that were active at the agent, as far as it has said.
    pub fn active(&self) -> Vec<ExtensionUri> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Without the header fields, which may be credentials.
impl fmt::Debug for UpstreamContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UpstreamContext").field("extensions", &self.extensions).finish_non_exhaustive()
    }
}
