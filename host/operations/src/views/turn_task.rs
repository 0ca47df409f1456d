//! The task of a turn, as its extensions see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{ContextId, Json, JsonObject, TaskId, TaskState, TaskStatus, Timestamp};

/// The turn's task, in the state after the last event that passed the hooks. Empty until there is a task. A clone shares the
/// same task.
#[derive(Clone)]
pub(crate) struct TurnTask(Arc<Shown>);

struct Shown {
    id: TaskId,
    context_id: ContextId,
    /// The status, without its message.
    status: Mutex<Option<TaskStatus>>,
}

impl TurnTask {
    pub(crate) fn new(id: TaskId, context_id: ContextId) -> Self {
        Self(Arc::new(Shown { id, context_id, status: Mutex::default() }))
    }

    pub(crate) fn show(&self, state: TaskState, timestamp: Option<Timestamp>) {
        *self.lock() = Some(TaskStatus { state, message: None, timestamp });
    }

    /// The state of the task. `None` if there is no task yet.
    pub(crate) fn state(&self) -> Option<TaskState> {
        self.lock().as_ref().map(|status| status.state)
    }

    pub(crate) fn id(&self) -> &TaskId {
        &self.0.id
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.0.context_id
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskStatus>> {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task as JSON, without the message of its status. `None` if there is no task yet.
    pub(crate) fn current(&self) -> Option<String> {
        let status = self.lock().clone()?;
        let shown = [
            ("id".to_owned(), Json::from_serialize(&self.0.id).ok()?),
            ("contextId".to_owned(), Json::from_serialize(&self.0.context_id).ok()?),
            ("status".to_owned(), Json::from_peer(&status).ok()?),
        ];
        Some(shown.into_iter().collect::<JsonObject>().to_json_string())
    }
}
