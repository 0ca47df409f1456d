//! The task that the turn works on (import `task`, needs the grant of that name).

use crate::Json;
use crate::imports::task;

/// The task as it is now: `id`, `contextId` and `status`. None as long as the message has not become a task.
pub fn current() -> Option<Json> {
    task::current()
}
