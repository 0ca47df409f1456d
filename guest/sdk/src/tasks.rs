//! The caller's tasks (import `tasks`, needs the grant of that name), and resumption of waiting tasks (import
//! `task-resumption`, needs the grant of that name).

use crate::Json;
use crate::imports::{task_resumption, tasks};

/// The answer of ListTasks for the caller; `request` is a ListTasksRequest as JSON.
///
/// # Errors
/// The error of ListTasks, as text.
pub fn list(request: &str) -> Result<Json, String> {
    tasks::list(request)
}

/// Resumes a task that this extension interrupted. The task resumes after the running hook has returned without an
/// error.
///
/// # Errors
/// When no such task exists.
pub fn resume(task_id: &str) -> Result<(), String> {
    task_resumption::resume(task_id)
}
