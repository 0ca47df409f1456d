//! What the extensions of a turn can read of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{ContextId, Json, JsonObject, TaskId, TaskStatus};
use annex_runtime::{SessionReader, TaskReader};
use annex_session::TurnSession;

/// Shows the turn's session to the runtime.
pub(crate) struct TurnState(pub(crate) TurnSession);

impl SessionReader for TurnState {
    fn get(&self, key: &str) -> Option<String> {
        self.0.value(key).map(|value| value.get().to_owned())
    }

    fn snapshot(&self) -> JsonObject {
        self.0.snapshot()
    }
}

/// Shows the turn's task to the runtime, from when there is one: as the last event that passed the hooks left it. Clones
/// share it.
#[derive(Clone, Default)]
pub(crate) struct TurnTask(Arc<Mutex<Option<Shown>>>);

struct Shown {
    id: TaskId,
    context_id: ContextId,
    status: TaskStatus,
}

impl TurnTask {
    pub(crate) fn show(&self, id: &TaskId, context_id: &ContextId, status: &TaskStatus) {
        let (id, context_id) = (id.clone(), context_id.clone());
        *self.lock() = Some(Shown { id, context_id, status: TaskStatus { message: None, ..status.clone() } });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskReader for TurnTask {
    fn current(&self) -> Option<String> {
        let task = self.lock();
        let task = task.as_ref()?;
        let shown = [
            ("id".to_owned(), Json::from_serialize(&task.id).ok()?),
            ("contextId".to_owned(), Json::from_serialize(&task.context_id).ok()?),
            ("status".to_owned(), Json::from_serialize(&task.status).ok()?),
        ];
        Some(shown.into_iter().collect::<JsonObject>().to_json_string())
    }
}
