//! The task of the turn (import `task`, needs the grant of that name).

use crate::Json;
use crate::imports::task;

/// The current task: `id`, `contextId` and `status`. `None` until the message has become a task.
pub fn current() -> Option<Json> {
    task::current()
}
