//! The facts about a request that a remote agent needs in addition to the message. Also the store for the ids that the remote
//! agent gives to conversations and tasks.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use annex_protocol::{ExtensionUri, Metadata, Secret, TaskId};
use async_trait::async_trait;
use http::HeaderMap;

/// The error of reading or storing ids.
pub type UpstreamIdsError = Box<dyn Error + Send + Sync>;

/// A store for the ids that a remote agent uses for the conversation and the task of a turn. The ids of the conversation are
/// one text, and the ids of the task are another. The ids are not part of the state, so no other agent sees them. They are
/// stored as durably as the conversation and the task. When a conversation or a task is deleted, its ids are deleted too.
#[async_trait]
pub trait UpstreamIds: Send + Sync {
    /// The stored ids of the conversation; `None` if there are none.
    async fn of_context(&self) -> Result<Option<String>, UpstreamIdsError>;

    /// The stored ids of one of the caller's tasks. `None` if no ids are stored, or if the task belongs to another caller.
    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, UpstreamIdsError>;

    /// Replaces the ids of the conversation.
    async fn store_context(&self, ids: &str) -> Result<(), UpstreamIdsError>;

    /// Replaces the ids of the turn's task.
    async fn store_task(&self, ids: &str) -> Result<(), UpstreamIdsError>;
}

/// The way in which a turn at a remote agent begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnStart {
    /// The turn sends the client's message.
    #[default]
    Message,
    /// Another process has sent the message and then stopped. The turn sends nothing, and follows the task that the
    /// message began.
    LostTurn,
    /// A task that waited for its client has continued without a message. The turn sends nothing, and follows the task.
    WaitingTask,
}

/// The bearer token of a turn's caller.
#[derive(Clone, Debug, Default)]
pub enum CallerToken {
    /// This server has verified the token. The token is in memory alone, for as long as the turn needs the context.
    Verified(Secret),
    /// The caller is anonymous, or has an API key.
    Absent,
    /// The turn has no request of its caller: it continues after its request, or another process has received the
    /// request.
    #[default]
    Gone,
}

/// The facts about a request that a remote agent needs in addition to the message.
pub struct UpstreamContext {
    /// The extensions that the caller requested and that the remote agent provides.
    pub extensions: Vec<ExtensionUri>,
    /// The header fields of the request; `None` if the binding does not provide them.
    pub headers: Option<Arc<HeaderMap>>,
    /// The bearer token of the caller, in exchange for which an agent may get a token of its own. The agent never sends this
    /// token to the remote agent.
    pub caller_token: CallerToken,
    /// Media types that the caller accepts.
    pub accepted_output_modes: Vec<String>,
    /// Metadata keys of this server's extensions, which the remote agent must not see.
    pub own_keys: Vec<String>,
    /// The forgotten metadata of the client's message: the remote agent gets it, and this server does not store it.
    pub forgotten_in_message: Metadata,
    /// The forgotten metadata of the client's request.
    pub forgotten_in_request: Metadata,
    /// The ids of conversations and tasks at the agent.
    pub ids: Arc<dyn UpstreamIds>,
    /// The way in which the turn begins.
    pub begins_with: TurnStart,
    active: Mutex<Vec<ExtensionUri>>,
}

impl UpstreamContext {
    /// Creates a context that has only the store for ids.
    pub fn new(ids: Arc<dyn UpstreamIds>) -> Self {
        Self {
            extensions: Vec::new(),
            headers: None,
            caller_token: CallerToken::Gone,
            accepted_output_modes: Vec::new(),
            own_keys: Vec::new(),
            forgotten_in_message: Metadata::new(),
            forgotten_in_request: Metadata::new(),
            ids,
            begins_with: TurnStart::Message,
            active: Mutex::default(),
        }
    }

    /// Records the extensions that the remote agent reports as active. Extensions that were not requested are ignored.
    pub fn set_active(&self, active: &[ExtensionUri]) {
        // Otherwise a remote agent could list extensions in this server's answer that were not requested.
        let asked = active.iter().filter(|uri| self.extensions.contains(uri)).cloned();
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = asked.collect();
    }

    /// The extensions that the remote agent has reported as active.
    pub fn active(&self) -> Vec<ExtensionUri> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Omits the header fields, which may be credentials.
impl fmt::Debug for UpstreamContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UpstreamContext").field("extensions", &self.extensions).finish_non_exhaustive()
    }
}
