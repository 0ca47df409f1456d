//! Services that the guests of a turn can reach: implemented by whoever serves the turn, and behind grants.

use std::sync::Arc;

use annex_keyvalue::{Scope, ScopeKind};
use annex_protocol::{ExtensionUri, ListTasksResponse};
use async_trait::async_trait;

/// The services of a turn for its guests, besides session and task. One that is `None` is answered as not there.
#[derive(Clone, Default)]
pub struct TurnServices {
    /// For `wasi:keyvalue/store`: the buckets `task` and `context`.
    pub scopes: Option<Arc<dyn KeyScopes>>,
    /// For `tasks`.
    pub tasks: Option<Arc<dyn TaskLister>>,
    /// For `agent-steps`.
    pub steps: Option<Arc<dyn StepReader>>,
    /// For `task-resumption`.
    pub resumption: Option<Arc<dyn TaskResumption>>,
}

/// Says what a turn's keys live and die with. The answers are the same for the whole turn. It must not block.
pub trait KeyScopes: Send + Sync {
    /// The turn's task or conversation; `None` where there is none. Whoever asks may leave keys there.
    fn scope(&self, kind: ScopeKind) -> Option<Scope>;
}

/// Lists the tasks of the turn's caller.
#[async_trait]
pub trait TaskLister: Send + Sync {
    /// The answer of ListTasks to the caller: a ListTasksRequest as JSON in.
    ///
    /// # Errors
    /// The error of ListTasks, as text for the extension.
    async fn list(&self, request: &str) -> Result<ListTasksResponse, String>;
}

/// Reads what the agent does in the turn. It must not block.
pub trait StepReader: Send + Sync {
    /// The steps so far as a JSON array of bounded size, as `agent-steps.wit` describes it.
    fn recorded(&self) -> String;
}

/// Takes up tasks that wait. It must not block.
pub trait TaskResumption: Send + Sync {
    /// Notes that a task which this extension interrupted is to go on.
    ///
    /// # Errors
    /// The reason for which it cannot, as text for the extension.
    fn resume(&self, task_id: &str, extension: &ExtensionUri) -> Result<(), String>;
}
