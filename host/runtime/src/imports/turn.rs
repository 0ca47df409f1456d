//! The turn beside its session: its task, the caller's tasks, the agent's steps.

use crate::owned_metadata;
use crate::store::HostState;

impl HostState {
    /// The task that the turn works on, as JSON.
    pub(crate) fn current_task(&self) -> Option<String> {
        self.turn.as_ref().and_then(|turn| turn.task.current())
    }

    /// A ListTasksResponse as JSON; the text says why there is none.
    pub(crate) async fn list_tasks(&mut self, request: &str) -> wasmtime::Result<Result<String, String>> {
        let tasks = self.turn.as_ref().and_then(|turn| turn.services.tasks.clone());
        let Some(tasks) = tasks else { return Ok(Err("there are no tasks to list here".to_owned())) };
        // Whoever lists without end has to wait each time, so that the limits on waiting hold.
        tokio::task::yield_now().await;
        let limit = self.profile.limits.input;
        let mut listed = match tasks.list(request).await {
            Ok(listed) => listed,
            Err(reason) => return Ok(Err(reason)),
        };
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
    pub(crate) fn resume_task(&self, task_id: &str) -> Result<(), String> {
        let resumption = self.turn.as_ref().and_then(|turn| turn.services.resumption.as_ref());
        match resumption {
            Some(resumption) => resumption.resume(task_id, &self.profile.uri),
            None => Err("tasks cannot be resumed here".to_owned()),
        }
    }

    /// The steps of the agent so far, as a JSON array.
    pub(crate) fn recorded_steps(&self) -> String {
        let steps = self.turn.as_ref().and_then(|turn| turn.services.steps.as_ref());
        steps.map_or_else(|| "[]".to_owned(), |steps| steps.recorded())
    }
}
