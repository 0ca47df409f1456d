//! The caller's tasks (import `tasks`, needs the grant of that name), and tasks that wait (import `task-resumption`,
//! needs that grant).

use crate::Json;
use crate::imports::{task_resumption, tasks};

/// The answer of ListTasks to the caller; `request` is a ListTasksRequest as JSON.
///
/// # Errors
/// The error of ListTasks, as text.
pub fn list(request: &str) -> Result<Json, String> {
    tasks::list(request)
}

/// Takes up a task that this extension interrupted, once the running hook has returned without an error.
///
/// # Errors
/// When there is no such task.
pub fn resume(task_id: &str) -> Result<(), String> {
    task_resumption::resume(task_id)
}
