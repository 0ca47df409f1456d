//! What the host can tell of the turn beside its session: its task, the caller's tasks, what the agent did.

use crate::bindings::v0_1::annex::extension::{agent_steps, task, task_resumption, tasks};
use crate::own;
use crate::store::HostState;

impl task::Host for HostState {
    fn current(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.turn.as_ref().and_then(|turn| turn.task.current()))
    }
}

impl tasks::Host for HostState {
    async fn list(&mut self, request: String) -> wasmtime::Result<Result<String, String>> {
        let tasks = self.turn.as_ref().and_then(|turn| turn.services.tasks.clone());
        let Some(tasks) = tasks else { return Ok(Err("there are no tasks to list here".to_owned())) };
        // Whoever lists without end has to wait each time, so that the limits on waiting hold.
        tokio::task::yield_now().await;
        let limit = self.profile.limits.input;
        let mut listed = match tasks.list(&request).await {
            Ok(listed) => listed,
            Err(reason) => return Ok(Err(reason)),
        };
        for task in &mut listed.tasks {
            own::narrow_task(task, &self.profile.metadata_keys);
        }
        let answer = serde_json::to_string(&listed)?;
        Ok(match answer.len() {
            bytes if bytes > limit => Err(format!(
                "the answer has {bytes} bytes, and at most {limit} are handed over; ask for a smaller page"
            )),
            _ => Ok(answer),
        })
    }
}

impl task_resumption::Host for HostState {
    fn resume(&mut self, task_id: String) -> wasmtime::Result<Result<(), String>> {
        let resumption = self.turn.as_ref().and_then(|turn| turn.services.resumption.as_ref());
        Ok(match resumption {
            Some(resumption) => resumption.resume(&task_id, &self.profile.uri),
            None => Err("tasks cannot be resumed here".to_owned()),
        })
    }
}

impl agent_steps::Host for HostState {
    fn recorded(&mut self) -> wasmtime::Result<String> {
        let steps = self.turn.as_ref().and_then(|turn| turn.services.steps.as_ref());
        Ok(steps.map_or_else(|| "[]".to_owned(), |steps| steps.recorded()))
    }
}
