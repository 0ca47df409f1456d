//! The ids of conversations and tasks at an upstream agent. They are in the key-value store under a name that no
//! extension can have, so they are deleted with the conversation or the task.

use std::sync::Arc;

use annex_agent::{UpstreamContext, UpstreamIds, UpstreamIdsError};
use annex_protocol::{A2aError, AgentExtension, ContextId, Owner, SendMessageRequest, TaskId};
use annex_runtime::{Scope, ScopeKind};
use annex_session::TurnSession;
use async_trait::async_trait;

use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::views::scoped_keys::{ScopedKeys, TurnKeys};

/// The key of the single value of a conversation or a task.
const KEY: &str = "note";

/// The ids for one turn, or for a task without a turn.
struct StoredUpstreamIds {
    keys: Arc<ScopedKeys>,
    owner: Owner,
    context: ContextId,
    task: TaskId,
    /// Keeps the ids of a turn from being swept before its task is stored.
    held: Option<TurnKeys>,
}

impl StoredUpstreamIds {
    fn context(&self) -> Scope {
        Scope::context(&self.owner.tenant, &self.owner.principal, &self.context)
    }

    fn task(&self, task: &TaskId) -> Scope {
        Scope::task(&self.owner.tenant, &self.owner.principal, task)
    }

    /// Notes that the scope may have keys, which must be removed if the task is never created.
    fn mark(&self, kind: ScopeKind) {
        if let Some(held) = &self.held {
            drop(held.scope(kind));
        }
    }
}

#[async_trait]
impl UpstreamIds for StoredUpstreamIds {
    async fn of_context(&self) -> Result<Option<String>, UpstreamIdsError> {
        Ok(self.keys.note(self.context(), KEY).await?)
    }

    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, UpstreamIdsError> {
        Ok(self.keys.note(self.task(task), KEY).await?)
    }

    async fn store_context(&self, note: &str) -> Result<(), UpstreamIdsError> {
        self.mark(ScopeKind::Context);
        Ok(self.keys.set_note(self.context(), KEY, note).await?)
    }

    async fn store_task(&self, note: &str) -> Result<(), UpstreamIdsError> {
        self.mark(ScopeKind::Task);
        Ok(self.keys.set_note(self.task(&self.task), KEY, note).await?)
    }
}

impl RequestHandler {
    /// The context for a message to a remote agent. `None` for a local agent.
    ///
    /// # Errors
    /// When the ids of an older conversation with the same id cannot be removed.
    pub(crate) async fn upstream_context(
        &self,
        call: &ServiceParameters,
        extensions: &ExtensionSet,
        (session, task): (&TurnSession, &TaskId),
        request: &SendMessageRequest,
    ) -> Result<Option<UpstreamContext>, A2aError> {
        if !self.agent_is_remote {
            return Ok(None);
        }
        let held = self.views.keys.of_turn(&call.owner, session, task).await;
        let held = held.map_err(|error| fault::internal(&error))?;
        let mut remote = self.upstream_context_about(call, &session.key().context, task, Some(held));
        let is_asked_for = |extension: &&AgentExtension| call.requested.contains(&extension.uri);
        remote.extensions =
            extensions.passed_on.iter().filter(is_asked_for).map(|extension| extension.uri.clone()).collect();
        remote.accepted_output_modes.clone_from(&request.configuration.accepted_output_modes);
        let installed = extensions.installed.iter();
        remote.own_keys = installed.flat_map(|extension| extension.descriptor().metadata_keys.clone()).collect();
        Ok(Some(remote))
    }

    /// Notifies a remote agent that one of its waiting tasks was cancelled here.
    pub(crate) async fn give_up(&self, call: &ServiceParameters, context: &ContextId, task: &TaskId) {
        if self.agent_is_remote {
            self.agent.give_up(task, &self.upstream_context_about(call, context, task, None)).await;
        }
    }

    /// The context for a query about a task without a turn.
    pub(crate) fn upstream_context_about(
        &self,
        call: &ServiceParameters,
        context: &ContextId,
        task: &TaskId,
        held: Option<TurnKeys>,
    ) -> UpstreamContext {
        let keys = Arc::clone(&self.views.keys);
        let owner = call.owner.clone();
        let context = context.clone();
        let task = task.clone();
        let ids = StoredUpstreamIds { keys, owner, context, task, held };
        let mut remote = UpstreamContext::new(Arc::new(ids));
        remote.headers.clone_from(&call.headers);
        remote
    }
}
