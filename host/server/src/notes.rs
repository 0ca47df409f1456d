//! What an agent that lives elsewhere notes about conversations and tasks: in the store for keys, under a name that no
//! extension can have, so that notes live and die with what they are about.

use std::sync::Arc;

use annex_agent::{Notes, NotesError, RemoteCall};
use annex_protocol::{A2aError, AgentExtension, ContextId, SendMessageRequest, TaskId};
use annex_runtime::{KeyScopes, Quota, Scope, ScopeKind};
use annex_session::TurnSession;
use annex_tasks::Owner;
use async_trait::async_trait;

use crate::call::Call;
use crate::edition::Edition;
use crate::fault;
use crate::handler::RequestHandler;
use crate::scoped_keys::{ScopedKeys, TurnKeys};

/// In the place of an extension's URI. It is no URI, so no extension has it.
pub(crate) const AGENT: &str = "agent";
/// Under which key the one note of a conversation or a task is.
const KEY: &str = "note";
/// There is a note per task and conversation, and how many of those there are is bounded elsewhere.
pub(crate) const QUOTA: Quota = Quota {
    max_keys: 1,
    max_value_bytes: 64 << 10,
    max_total_bytes: 128 << 10,
    max_scoped_keys: usize::MAX,
    max_scoped_bytes: usize::MAX,
};

/// The notes of one turn, or of one task that has none.
struct AgentNotes {
    keys: Arc<ScopedKeys>,
    owner: Owner,
    context: ContextId,
    task: TaskId,
    /// Keeps the notes of a turn from being swept before its task is stored.
    held: Option<TurnKeys>,
}

impl AgentNotes {
    fn context(&self) -> Scope {
        Scope::context(&self.owner.tenant, &self.owner.principal, &self.context)
    }

    fn task(&self, task: &TaskId) -> Scope {
        Scope::task(&self.owner.tenant, &self.owner.principal, task)
    }

    /// Says that there is something to sweep if the task never comes to be.
    fn mark(&self, kind: ScopeKind) {
        if let Some(held) = &self.held {
            drop(held.scope(kind));
        }
    }
}

#[async_trait]
impl Notes for AgentNotes {
    async fn of_context(&self) -> Result<Option<String>, NotesError> {
        Ok(self.keys.note(self.context(), KEY).await?)
    }

    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, NotesError> {
        Ok(self.keys.note(self.task(task), KEY).await?)
    }

    async fn note_context(&self, note: &str) -> Result<(), NotesError> {
        self.mark(ScopeKind::Context);
        Ok(self.keys.set_note(self.context(), KEY, note).await?)
    }

    async fn note_task(&self, note: &str) -> Result<(), NotesError> {
        self.mark(ScopeKind::Task);
        Ok(self.keys.set_note(self.task(&self.task), KEY, note).await?)
    }
}

impl RequestHandler {
    /// What an agent that lives elsewhere is told of a message; `None` for all others.
    ///
    /// # Errors
    /// When the notes of an older conversation cannot be removed.
    pub(crate) async fn remote_call(
        &self,
        call: &Call,
        edition: &Edition,
        (session, task): (&TurnSession, &TaskId),
        request: &SendMessageRequest,
    ) -> Result<Option<RemoteCall>, A2aError> {
        if !self.agent_is_remote {
            return Ok(None);
        }
        let held = self.services.keys.of_turn(&call.owner, session, task).await;
        let held = held.map_err(|error| fault::internal(&error))?;
        let mut remote = self.remote_call_about(call, &session.key().context, task, Some(held));
        let is_asked_for = |extension: &&AgentExtension| call.requested.contains(&extension.uri);
        remote.extensions =
            edition.passed_on.iter().filter(is_asked_for).map(|extension| extension.uri.clone()).collect();
        remote.accepted_output_modes.clone_from(&request.configuration.accepted_output_modes);
        let installed = edition.installed.iter();
        remote.own_keys = installed.flat_map(|extension| extension.descriptor().metadata_keys.clone()).collect();
        Ok(Some(remote))
    }

    /// Tells an agent that lives elsewhere that a task which waits there is cancelled here.
    pub(crate) async fn give_up(&self, call: &Call, context: &ContextId, task: &TaskId) {
        if self.agent_is_remote {
            self.agent.give_up(task, &self.remote_call_about(call, context, task, None)).await;
        }
    }

    fn remote_call_about(&self, call: &Call, context: &ContextId, task: &TaskId, held: Option<TurnKeys>) -> RemoteCall {
        let keys = Arc::clone(&self.services.keys);
        let (owner, context, task) = (call.owner.clone(), context.clone(), task.clone());
        let notes = AgentNotes { keys, owner, context, task, held };
        let mut remote = RemoteCall::new(Arc::new(notes));
        remote.headers.clone_from(&call.headers);
        remote
    }
}
