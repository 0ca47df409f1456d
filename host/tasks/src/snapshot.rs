//! A task as it is at one moment.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use annex_protocol::Task;
use serde_json::Error as JsonError;

/// A task as it is at one moment. Clones share it.
///
/// Once a store has kept it as finished they share its JSON too, so that a binding need not make it again. Of a task that
/// goes on there will be many snapshots, and none keeps a text beside its values.
#[derive(Clone, Debug)]
pub struct TaskSnapshot {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    task: Task,
    json: OnceLock<Arc<str>>,
}

impl TaskSnapshot {
    /// The task as JSON on one line.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn json(&self) -> Result<Cow<'_, str>, JsonError> {
        match self.inner.json.get() {
            Some(json) => Ok(Cow::Borrowed(json)),
            None => serde_json::to_string(&self.inner.task).map(Cow::Owned),
        }
    }

    /// The same for a store, which keeps it.
    pub(crate) fn stored_json(&self) -> Result<Arc<str>, JsonError> {
        if let Some(json) = self.inner.json.get() {
            return Ok(Arc::clone(json));
        }
        let json: Arc<str> = serde_json::to_string(&self.inner.task)?.into();
        if self.inner.task.status.state.is_terminal() {
            return Ok(Arc::clone(self.inner.json.get_or_init(|| json)));
        }
        Ok(json)
    }

    /// The task, to change it.
    pub fn into_task(self) -> Task {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner.task,
            Err(shared) => shared.task.clone(),
        }
    }
}

impl From<Task> for TaskSnapshot {
    fn from(task: Task) -> Self {
        Self { inner: Arc::new(Inner { task, json: OnceLock::new() }) }
    }
}

impl Deref for TaskSnapshot {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.inner.task
    }
}

impl PartialEq for TaskSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.inner.task == other.inner.task
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use annex_protocol::{Task, TaskState, TaskStatus};

    use super::TaskSnapshot;

    fn task(state: TaskState) -> TaskSnapshot {
        Task { id: "t".into(), status: TaskStatus { state, ..TaskStatus::default() }, ..Task::default() }.into()
    }

    #[test]
    fn a_finished_task_that_a_store_has_kept_is_not_encoded_again() {
        let kept = task(TaskState::Completed);
        let sent = kept.clone();
        let stored = kept.stored_json().unwrap();
        assert!(matches!(sent.json().unwrap(), Cow::Borrowed(json) if json == &*stored));
        assert!(Arc::ptr_eq(&sent.stored_json().unwrap(), &stored));
    }

    #[test]
    fn a_task_that_goes_on_keeps_no_text_beside_its_values() {
        let kept = task(TaskState::Working);
        assert_eq!(*kept.stored_json().unwrap(), *kept.json().unwrap());
        assert!(matches!(kept.json().unwrap(), Cow::Owned(_)));
    }
}
