//! The services that extensions get from the host besides session and task, made for each turn that has any.

use std::sync::Arc;

use annex_agent::Steps;
use annex_protocol::{A2aError, Json, ListTasksResponse, TaskId, jsonrpc};
use annex_runtime::{Extension, KeyScopes, StepReader, TaskLister, TaskResumption, TurnServices};
use annex_session::TurnSession;
use annex_tasks::Owner;
use async_trait::async_trait;

use crate::fault;
use crate::tasks::list::Lister;
use crate::views::scoped_keys::ScopedKeys;

pub(crate) mod readers;
pub mod scoped_keys;

/// The parts that all turns share.
pub struct ExtensionViews {
    pub keys: Arc<ScopedKeys>,
    pub lister: Lister,
}

impl ExtensionViews {
    /// Of one turn, which runs `active`. There is nothing where nothing is active.
    ///
    /// # Errors
    /// When the keys of an older conversation cannot be removed.
    pub(crate) async fn of_turn(
        &self,
        active: &[Arc<Extension>],
        owner: &Owner,
        (session, task, steps): (&TurnSession, &TaskId, &Steps),
    ) -> Result<TurnServices, A2aError> {
        if active.is_empty() {
            return Ok(TurnServices::default());
        }
        let mut scopes: Option<Arc<dyn KeyScopes>> = None;
        if active.iter().any(|extension| extension.grants().keyvalue.is_some()) {
            let keys = self.keys.of_turn(owner, session, task).await.map_err(|error| fault::internal(&error))?;
            scopes = Some(Arc::new(keys));
        }
        let tasks = CallersTasks { lister: self.lister.clone(), owner: owner.clone() };
        let tasks = Arc::new(tasks);
        let steps = Arc::new(TurnSteps(steps.clone()));
        Ok(TurnServices { scopes, tasks: Some(tasks), steps: Some(steps), resumption: None })
    }

    /// Of one call of a method, which belongs to no turn.
    pub(crate) fn of_method(&self, owner: &Owner, resumption: Arc<dyn TaskResumption>) -> TurnServices {
        let tasks = CallersTasks { lister: self.lister.clone(), owner: owner.clone() };
        TurnServices { tasks: Some(Arc::new(tasks)), resumption: Some(resumption), ..TurnServices::default() }
    }
}

/// Lists tasks for the caller of the turn or the method.
struct CallersTasks {
    lister: Lister,
    owner: Owner,
}

#[async_trait]
impl TaskLister for CallersTasks {
    async fn list(&self, request: &str) -> Result<ListTasksResponse, String> {
        let request = Json::parse(request.to_owned()).map_err(|error| format!("the request is not JSON: {error}"))?;
        let listed = async {
            let request = jsonrpc::params(&request)?;
            self.lister.list(&self.owner, &request).await
        };
        listed.await.map_err(|error: A2aError| error.to_string())
    }
}

/// Shows the agent's steps to the runtime.
struct TurnSteps(Steps);

impl StepReader for TurnSteps {
    fn recorded(&self) -> String {
        self.0.to_json()
    }
}
