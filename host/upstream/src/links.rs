//! Stored pairs of ids. Each pair links a context or task of this server with the upstream's context or task.

use annex_agent::{UpstreamContext, UpstreamIdsError};
use annex_protocol::{ContextId, MessageId, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// The upstream's ids for a task or a conversation of this server. The link is stored as JSON. The link of a
/// conversation has no `task`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<TaskId>,
    /// True if the upstream's task waits for its client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) waits: bool,
    /// The state in which the task waits. `None` if it does not wait, or if an older version stored the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits_in: Option<TaskState>,
    /// The id of the last status message that this server relayed; only for a task that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shown: Option<MessageId>,
    /// The artifacts that were relayed. Each is a digest of the artifact's id and a digest of its content. The newest
    /// is last. If there are too many, the oldest are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<(u64, u64)>,
    /// The number of relayed artifacts that came without an id.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unnamed: usize,
}

impl Link {
    /// Loads the upstream's ids for the next message of `task`. If the link of the task names no context, the link of the
    /// conversation is used instead. The link of a waiting task is used even without a context, because some upstreams have no
    /// contexts.
    pub(crate) async fn load(remote: &UpstreamContext, task: &TaskId) -> Result<Self, UpstreamIdsError> {
        let of_task = Self::of_task(remote, task).await?.unwrap_or_default();
        if of_task.context.is_some() || of_task.waits {
            return Ok(of_task);
        }
        let of_context = remote.ids.of_context().await?;
        Ok(of_context.map(|note| serde_json::from_str(&note)).transpose()?.unwrap_or_default())
    }

    /// Loads the link of a task; `None` if none is stored.
    pub(crate) async fn of_task(remote: &UpstreamContext, task: &TaskId) -> Result<Option<Self>, UpstreamIdsError> {
        let stored = remote.ids.of_task(task).await?;
        Ok(stored.map(|note| serde_json::from_str(&note)).transpose()?)
    }

    /// Stores the ids of this link. `known` is the link that is already stored. Ids that are equal in both links are not
    /// written again.
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

    /// True if `state` shows that the task, which waited for its client, has continued by itself.
    pub(crate) fn has_gone_on(&self, state: TaskState) -> bool {
        let is_as_left = self.waits_in.map_or_else(|| state.is_interrupted(), |waits_in| waits_in == state);
        state != TaskState::Unspecified && !is_as_left
    }

    /// The upstream's task that the next message continues; `None` if no task waits.
    pub(crate) fn waiting_task(&self) -> Option<&TaskId> {
        self.task.as_ref().filter(|_| self.waits)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
