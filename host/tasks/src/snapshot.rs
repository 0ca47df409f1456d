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
