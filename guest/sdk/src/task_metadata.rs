//! Metadata of the turn's task (import `task-metadata`, needs the grant of that name).

use crate::imports::task_metadata;

/// Sets an entry under a key that the descriptor owns; `value` is JSON text. The entry is sent with the next status of
/// the task, and each later Task has it. A later value replaces it.
///
/// # Errors
/// The key belongs to another extension, the value is not JSON, the entries exceed the limits, or the hook has no task.
pub fn set(key: &str, value: &str) -> Result<(), String> {
    task_metadata::set(key, value)
}
