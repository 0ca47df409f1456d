//! What an agent that lives elsewhere is told beside the message, and what it notes about conversations and tasks.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use annex_protocol::{ExtensionUri, TaskId};
use async_trait::async_trait;
use http::HeaderMap;

/// Why a note cannot be read or kept.
pub type NotesError = Box<dyn Error + Send + Sync>;

/// What an agent notes about the conversation and the task of a turn: one text for each, which is no state and which
/// nobody else sees. Notes live as long as what they are about, and as durably.
#[async_trait]
pub trait Notes: Send + Sync {
    /// The note about the conversation.
    async fn of_context(&self) -> Result<Option<String>, NotesError>;

    /// The note about a task of the caller; none about a task of somebody else.
    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, NotesError>;

    /// Replaces the note about the conversation.
    async fn note_context(&self, note: &str) -> Result<(), NotesError>;

    /// Replaces the note about the turn's task.
    async fn note_task(&self, note: &str) -> Result<(), NotesError>;
}

/// What an agent that lives elsewhere is told of a request beside its message.
pub struct RemoteCall {
    /// The extensions that the caller asked for and that are the agent's own.
    pub extensions: Vec<ExtensionUri>,
    /// The header fields of the request; `None` where the binding shows none.
    pub headers: Option<Arc<HeaderMap>>,
    /// Media types that the caller takes.
    pub accepted_output_modes: Vec<String>,
    /// Metadata keys that are for this server's extensions, not for the agent.
    pub own_keys: Vec<String>,
    /// What the agent notes.
    pub notes: Arc<dyn Notes>,
    active: Mutex<Vec<ExtensionUri>>,
}

impl RemoteCall {
    /// A call of which only the notes are known.
    pub fn new(notes: Arc<dyn Notes>) -> Self {
        Self {
            extensions: Vec::new(),
            headers: None,
            accepted_output_modes: Vec::new(),
            own_keys: Vec::new(),
            notes,
            active: Mutex::default(),
        }
    }

    /// Takes note of the extensions that the agent says were active. Only those that it was asked for count.
    pub fn set_active(&self, active: &[ExtensionUri]) {
        let asked = active.iter().filter(|uri| self.extensions.contains(uri)).cloned();
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = asked.collect();
    }

    /// The extensions that were active at the agent, as far as it has said.
    pub fn active(&self) -> Vec<ExtensionUri> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Without the header fields, which may be credentials.
impl fmt::Debug for RemoteCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RemoteCall").field("extensions", &self.extensions).finish_non_exhaustive()
    }
}
