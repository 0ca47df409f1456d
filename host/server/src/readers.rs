//! What the extensions of a turn can read of it.

use std::sync::{Arc, OnceLock, Weak};

use annex_protocol::{Json, JsonObject, TaskStatus};
use annex_runtime::{SessionReader, TaskReader};
use annex_session::TurnSession;

use crate::task_record::TaskRecord;

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

/// Shows the turn's task to the runtime, from when there is one. Clones share it, and none keeps it alive.
#[derive(Clone, Default)]
pub(crate) struct TurnTask(Arc<OnceLock<Weak<TaskRecord>>>);

impl TurnTask {
    /// The task that the turn works on; the first call counts.
    pub(crate) fn begin(&self, record: &Arc<TaskRecord>) {
        self.0.get_or_init(|| Arc::downgrade(record));
    }
}

impl TaskReader for TurnTask {
    fn current(&self) -> Option<String> {
        let task = self.0.get()?.upgrade()?.snapshot();
        let status = TaskStatus { message: None, ..task.status.clone() };
        let shown = [
            ("id".to_owned(), Json::from_serialize(&task.id).ok()?),
            ("contextId".to_owned(), Json::from_serialize(&task.context_id).ok()?),
            ("status".to_owned(), Json::from_serialize(&status).ok()?),
        ];
        Some(shown.into_iter().collect::<JsonObject>().to_json_string())
    }
}
