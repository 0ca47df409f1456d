//! The turn beside its session: its task, the caller's tasks, the agent's steps.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::chain::owned_metadata;
use crate::confinement::store::HostState;
use crate::turn_view::{NoTurn, TurnView};

impl HostState {
    /// The time since 1970.
    pub(crate) fn wall_time(&self) -> Duration {
        match &self.outside().clock {
            Some(clock) => clock.now(),
            // A machine whose clock stands before 1970 is no reason to stop a guest.
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// The task that the turn works on, as JSON.
    pub(crate) fn current_task(&self) -> Option<String> {
        self.turn.as_ref().and_then(|turn| turn.task())
    }

    /// A ListTasksResponse as JSON; the text says why there is none.
    pub(crate) async fn list_tasks(&mut self, request: &str) -> wasmtime::Result<Result<String, String>> {
        let turn = self.turn_or_none();
        // A guest that lists without end has to wait in each call, so that the limits on the clock hold for it.
        tokio::task::yield_now().await;
        // Hooks are handed no more than this at once, and imports are no way around it.
        let limit = self.profile.limits.input;
        let mut listed = match turn.list_tasks(request).await {
            Ok(listed) => listed,
            Err(reason) => return Ok(Err(reason)),
        };
        // These are tasks of the caller, on which other extensions may have written metadata.
        for task in &mut listed.tasks {
            owned_metadata::retain_in_task(task, &self.profile.metadata_keys);
        }
        let answer = serde_json::to_string(&listed)?;
        Ok(match answer.len() {
            bytes if bytes > limit => Err(format!(
                "the answer has {bytes} bytes, and at most {limit} are handed over; ask for a smaller page"
            )),
            _ => Ok(answer),
        })
    }

    /// Notes that a task is to be taken up again; the text says why it cannot be.
    pub(crate) async fn resume_task(&mut self, task_id: &str) -> Result<(), String> {
        let turn = self.turn_or_none();
        let extension = self.profile.uri.clone();
        // As with lists: a guest that asks without end has to wait in each call.
        tokio::task::yield_now().await;
        turn.resume_task(task_id, &extension).await
    }

    /// The steps of the agent so far, as a JSON array.
    pub(crate) fn recorded_steps(&self) -> String {
        self.turn_or_none().agent_steps()
    }

    /// The turn; that where there is none while the extension is being loaded.
    fn turn_or_none(&self) -> Arc<dyn TurnView> {
        self.turn.clone().unwrap_or_else(|| Arc::new(NoTurn))
    }
}
