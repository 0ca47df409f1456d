//! The ids of conversations and tasks at an upstream agent. They are notes in the log, so they are deleted with the
//! conversation or the task.

use std::sync::Arc;

use annex_agent::{UpstreamContext, UpstreamIds, UpstreamIdsError};
use annex_conversation::{Conversation, ConversationKey, ConversationStore, Entry, Note, Window};
use annex_protocol::{AgentExtension, TaskId};
use async_trait::async_trait;

use crate::extension_set::ExtensionSet;
use crate::request_handler::RequestHandler;
use crate::send_message::incoming::Incoming;
use crate::service_parameters::ServiceParameters;
use crate::tasks::record::TaskRecord;

/// The stored ids at the upstream agent. A turn reads and writes them. A query about a task without a turn only reads them.
struct StoredUpstreamIds {
    store: Arc<dyn ConversationStore>,
    key: ConversationKey,
    /// The turn that stores new ids. `None` if there is no turn. Without a turn the ids can only be read.
    turn: Option<Conversation>,
}

/// The error for ids that cannot be stored, because no turn runs.
#[derive(Debug, thiserror::Error)]
#[error("no turn runs that could store the ids")]
struct NoTurn;

impl StoredUpstreamIds {
    async fn store(&self, note: Note) -> Result<(), UpstreamIdsError> {
        let turn = self.turn.as_ref().ok_or(NoTurn)?;
        turn.append([Entry::Note(note)]).await?;
        Ok(())
    }
}

#[async_trait]
impl UpstreamIds for StoredUpstreamIds {
    async fn of_context(&self) -> Result<Option<String>, UpstreamIdsError> {
        let ids = match &self.turn {
            Some(turn) => turn.upstream(),
            None => self.store.conversation(&self.key, Window::NONE).await?.upstream,
        };
        Ok(ids.map(|ids| ids.to_string()))
    }

    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, UpstreamIdsError> {
        let stored = self.store.task(task).await?.filter(|task| task.is_of(self.key.owner()));
        Ok(stored.and_then(|task| task.upstream).map(|ids| ids.to_string()))
    }

    async fn store_context(&self, ids: &str) -> Result<(), UpstreamIdsError> {
        self.store(Note::UpstreamContext(ids.into())).await
    }

    async fn store_task(&self, ids: &str) -> Result<(), UpstreamIdsError> {
        self.store(Note::UpstreamTask(ids.into())).await
    }
}

impl RequestHandler {
    /// The context for a message to a remote agent. `None` for a local agent.
    pub(crate) fn upstream_context(
        &self,
        incoming: &Incoming,
        extensions: &ExtensionSet,
        conversation: &Conversation,
    ) -> Option<UpstreamContext> {
        if !self.agent_is_remote {
            return None;
        }
        let call = &incoming.call;
        let mut remote = self.upstream_ids(call, conversation.key(), Some(conversation.clone()));
        let is_asked_for = |extension: &&AgentExtension| call.requested.contains(&extension.uri);
        remote.extensions =
            extensions.passed_on.iter().filter(is_asked_for).map(|extension| extension.uri.clone()).collect();
        remote.accepted_output_modes.clone_from(&incoming.request.configuration.accepted_output_modes);
        let installed = extensions.installed.iter();
        remote.own_keys = installed.flat_map(|extension| extension.descriptor().metadata_keys.clone()).collect();
        (remote.forgotten_in_message, remote.forgotten_in_request) = incoming.forgotten.for_agent();
        remote.begins_with = incoming.again.unwrap_or_default();
        Some(remote)
    }

    /// Notifies a remote agent that a task which waited for its client was cancelled here.
    pub(crate) async fn give_up(&self, call: &ServiceParameters, record: &TaskRecord) {
        if self.agent_is_remote {
            self.agent.give_up(record.id(), &self.upstream_context_about(call, record)).await;
        }
    }

    /// The context for a query about a task without a turn.
    pub(crate) fn upstream_context_about(&self, call: &ServiceParameters, record: &TaskRecord) -> UpstreamContext {
        self.upstream_ids(call, record.key(), None)
    }

    fn upstream_ids(
        &self,
        call: &ServiceParameters,
        key: &ConversationKey,
        turn: Option<Conversation>,
    ) -> UpstreamContext {
        let ids = StoredUpstreamIds { store: Arc::clone(self.process.tasks.store()), key: key.clone(), turn };
        let mut remote = UpstreamContext::new(Arc::new(ids));
        remote.headers.clone_from(&call.headers);
        remote.caller_token = call.caller_token();
        remote
    }
}
