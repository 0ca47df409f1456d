//! The view that extensions have of the turn that they serve: implemented by the host that runs turns, and behind grants.

use std::sync::Arc;

use annex_keyvalue::{Scope, ScopeKind};
use annex_protocol::{ExtensionUri, JsonObject, ListTasksResponse};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::outside::Outside;
use crate::recording::TurnObserver;

/// One turn, or one call of a method, as the guests that serve it can see it. What a method does not implement is answered
/// as not there.
///
/// A guest waits while a method runs. Those that are not `async` must not block.
#[async_trait]
pub trait TurnView: Send + Sync {
    /// The ids of the turn, for the log. They are the same for the whole turn.
    fn ids(&self) -> TurnIds {
        TurnIds::default()
    }

    /// Services that the turn brings in place of the host's own.
    fn outside(&self) -> Option<&Outside> {
        None
    }

    /// An observer of what the extensions do in this turn, in place of those of all turns.
    fn observer(&self) -> Option<Arc<dyn TurnObserver>> {
        None
    }

    /// The JSON text of a session-scope key.
    fn session_value(&self, _key: &str) -> Option<String> {
        None
    }

    /// All session-scope keys.
    fn session(&self) -> JsonObject {
        JsonObject::new()
    }

    /// The task as it is now, as JSON: `id`, `contextId` and `status` without its message. `None` while there is none.
    fn task(&self) -> Option<String> {
        None
    }

    /// The turn's task or conversation, for the buckets `task` and `context` of `wasi:keyvalue/store`. The answers are the
    /// same for the whole turn. An extension that asks may leave keys there.
    fn key_scope(&self, _kind: ScopeKind) -> Option<Scope> {
        None
    }

    /// The answer of ListTasks to the caller: a ListTasksRequest as JSON in.
    ///
    /// # Errors
    /// The error of ListTasks, as text for the extension.
    async fn list_tasks(&self, _request: &str) -> Result<ListTasksResponse, String> {
        Err("there are no tasks to list here".to_owned())
    }

    /// The steps of the agent so far as a JSON array of bounded size, as `agent-steps.wit` describes it.
    fn agent_steps(&self) -> String {
        "[]".to_owned()
    }

    /// Notes that a task which this extension interrupted is to go on.
    ///
    /// # Errors
    /// The reason for which it cannot, as text for the extension.
    async fn resume_task(&self, _task_id: &str, _extension: &ExtensionUri) -> Result<(), String> {
        Err("tasks cannot be resumed here".to_owned())
    }
}

/// The ids of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnIds {
    /// The task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The conversation's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

/// The view where there is no turn: on the calling side.
#[derive(Clone, Copy, Debug)]
pub struct NoTurn;

impl TurnView for NoTurn {}
