//! Imports about the turn other than session state: its task, the caller's tasks, the agent's steps.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::chain::owned_metadata;
use crate::confinement::store::HostState;
use crate::turn_view::{NoTurn, TurnView};

impl HostState {
    /// Time since 1970.
    pub(crate) fn wall_time(&self) -> Duration {
        match &self.overrides().clock {
            Some(clock) => clock.now(),
            // A clock before 1970 is no reason to stop a guest.
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// The task of the turn as JSON.
    pub(crate) fn current_task(&self) -> Option<String> {
        self.turn.as_ref().and_then(|turn| turn.task())
    }

    /// Lists tasks. Returns a ListTasksResponse as JSON, or the reason for an error.
    pub(crate) async fn list_tasks(&mut self, request: &str) -> wasmtime::Result<Result<String, String>> {
        let turn = self.turn_or_none();
        // Yields, so that a guest that lists endlessly is subject to the wall-clock limits.
        tokio::task::yield_now().await;
        // Hooks get at most this many bytes, and imports must not bypass the limit.
        let limit = self.profile.limits.input;
        let mut listed = match turn.list_tasks(request).await {
            Ok(listed) => listed,
            Err(reason) => return Ok(Err(reason)),
        };
        // Other extensions may have written metadata on the caller's tasks.
        for task in &mut listed.tasks {
            owned_metadata::retain_in_task(task, &self.profile.metadata_keys);
        }
        let answer = serde_json::to_string(&listed)?;
        Ok(match answer.len() {
            bytes if bytes > limit => {
                Err(format!("the answer has {bytes} bytes, and at most {limit} are allowed; ask for a smaller page"))
            }
            _ => Ok(answer),
        })
    }

    /// Asks to resume a task. The error says why the task cannot be resumed.
    pub(crate) async fn resume_task(&mut self, task_id: &str) -> Result<(), String> {
        let turn = self.turn_or_none();
        let extension = self.profile.uri.clone();
        // Yields, so that a guest that calls this endlessly is subject to the wall-clock limits.
        tokio::task::yield_now().await;
        turn.resume_task(task_id, &extension).await
    }

    /// The agent's steps so far, as a JSON array.
    pub(crate) fn recorded_steps(&self) -> String {
        self.turn_or_none().agent_steps()
    }

    /// The view of the turn. While the extension is loaded, an empty view.
    fn turn_or_none(&self) -> Arc<dyn TurnView> {
        self.turn.clone().unwrap_or_else(|| Arc::new(NoTurn))
    }
}
