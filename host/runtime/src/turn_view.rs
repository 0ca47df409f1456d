//! The interface through which extensions see their turn. The host that runs turns implements the interface, and grants
//! restrict it.

use std::sync::Arc;

use annex_keyvalue::{Scope, ScopeKind};
use annex_protocol::{ExtensionUri, JsonObject, ListTasksResponse};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::overrides::ServiceOverrides;
use crate::recording::TurnObserver;

/// A turn or a method call, as guests see it. By default each method answers as if its data did not exist.
///
/// While a method runs, the guest waits. A method that is not `async` must not block.
#[async_trait]
pub trait TurnView: Send + Sync {
    /// Ids of the turn for the log. They must not change during the turn.
    fn ids(&self) -> TurnIds {
        TurnIds::default()
    }

    /// Replacements of host services in this turn. `None` for the services of the runtime.
    fn overrides(&self) -> Option<&ServiceOverrides> {
        None
    }

    /// An observer for this turn, in place of the observers of its extensions. `None` leaves the observers of the
    /// extensions.
    fn observer(&self) -> Option<Arc<dyn TurnObserver>> {
        None
    }

    /// The value of a session-scope key as JSON text. `None` if the key is not set.
    fn session_value(&self, _key: &str) -> Option<String> {
        None
    }

    /// All session-scope keys.
    fn session(&self) -> JsonObject {
        JsonObject::new()
    }

    /// The present task as JSON: `id`, `contextId`, and `status` without its message. `None` if there is no task.
    fn task(&self) -> Option<String> {
        None
    }

    /// The caller of the turn or of the method. The grants of an extension decide which parts the extension sees. `None`
    /// if there is no caller, as for the hook `client`.
    fn caller(&self) -> Option<&Caller> {
        None
    }

    /// Scope of the turn's task or conversation, for the buckets `task` and `context` of `wasi:keyvalue/store`. The
    /// result must not change during the turn. The extension may store keys under this scope.
    fn key_scope(&self, _kind: ScopeKind) -> Option<Scope> {
        None
    }

    /// Lists the caller's tasks. `request` is a ListTasksRequest as JSON.
    ///
    /// # Errors
    /// ListTasks fails. The text is for the extension.
    async fn list_tasks(&self, _request: &str) -> Result<ListTasksResponse, String> {
        Err("there are no tasks to list here".to_owned())
    }

    /// The agent's steps so far as a JSON array of limited size; `agent-steps.wit` defines the format.
    fn agent_steps(&self) -> String {
        "[]".to_owned()
    }

    /// Notes that the extension has called `task-metadata.set`. `error` is the error for the extension, if the call was
    /// refused.
    fn task_metadata_set(&self, _key: &str, _value: &str, _error: Option<&str>) {}

    /// Requests that a task is resumed. `extension` must have interrupted this task.
    ///
    /// # Errors
    /// The task cannot be resumed. The text says why, and is for the extension.
    async fn resume_task(&self, _task_id: &str, _extension: &ExtensionUri) -> Result<(), String> {
        Err("tasks cannot be resumed here".to_owned())
    }
}

/// The ids by which clients know the task and the conversation of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnIds {
    /// Id of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Id of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

/// An empty view, for calls that belong to no turn, such as the calls of the hook `client`.
#[derive(Clone, Copy, Debug)]
pub struct NoTurn;

impl TurnView for NoTurn {}
