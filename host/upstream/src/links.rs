//! The contexts and tasks of the upstream that belong to those of this server, as they are noted.

use annex_agent::{UpstreamContext, UpstreamIdsError};
use annex_protocol::{ContextId, MessageId, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// The upstream's ids for a task of this server. As JSON it is the note about the task; without the task it is the note
/// about a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<TaskId>,
    /// True if the task waits for its client at the upstream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) waits: bool,
    /// The state that it waits in. Notes of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits_in: Option<TaskState>,
    /// The last message of the upstream about the task that its client has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shown: Option<MessageId>,
    /// Digests of the ids and contents of the artifacts that the task has here, of the last ones if they are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<(u64, u64)>,
    /// The number of its artifacts that came without an id.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unnamed: usize,
}

impl Link {
    /// The ids that are known of the conversation and of `task`. A task that waits is continued as it was left: an
    /// upstream that has no contexts names none with it.
    pub(crate) async fn load(remote: &UpstreamContext, task: &TaskId) -> Result<Self, UpstreamIdsError> {
        let of_task = Self::of_task(remote, task).await?.unwrap_or_default();
        if of_task.context.is_some() || of_task.waits {
            return Ok(of_task);
        }
        let of_context = remote.ids.of_context().await?;
        Ok(of_context.map(|note| serde_json::from_str(&note)).transpose()?.unwrap_or_default())
    }

    /// The link of one task of the caller.
    pub(crate) async fn of_task(remote: &UpstreamContext, task: &TaskId) -> Result<Option<Self>, UpstreamIdsError> {
        let stored = remote.ids.of_task(task).await?;
        Ok(stored.map(|note| serde_json::from_str(&note)).transpose()?)
    }

    /// Stores the ids. `known` is what is stored already.
    pub(crate) async fn keep(&self, remote: &UpstreamContext, known: &Self) -> Result<(), UpstreamIdsError> {
        if self.context != known.context {
            let of_context = Self { context: self.context.clone(), ..Self::default() };
            remote.ids.store_context(&serde_json::to_string(&of_context)?).await?;
        }
        if self.task.is_some() && self != known {
            remote.ids.store_task(&serde_json::to_string(self)?).await?;
        }
        Ok(())
    }

    /// True if a task that was left waiting is in this state because it has gone on by itself.
    pub(crate) fn has_gone_on(&self, state: TaskState) -> bool {
        let is_as_left = self.waits_in.map_or_else(|| state.is_interrupted(), |waits_in| waits_in == state);
        state != TaskState::Unspecified && !is_as_left
    }

    /// The upstream's task, if the next message continues it.
    pub(crate) fn waiting_task(&self) -> Option<&TaskId> {
        self.task.as_ref().filter(|_| self.waits)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
