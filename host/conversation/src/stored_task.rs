//! A task as it is stored.

use std::borrow::Cow;
use std::sync::Arc;

use annex_protocol::{Task, TaskId};

use crate::error::StoreError;
use crate::key::{ConversationKey, Owner};
use crate::task::TaskSnapshot;

/// A stored task, which is decoded on demand.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTask {
    /// The task.
    pub id: TaskId,
    /// The conversation of the task.
    pub key: ConversationKey,
    /// The number of the last entry; 0 for a SUBMITTED task whose turn waits.
    pub number: u64,
    /// True if the queue has a turn of the task.
    pub is_worked_on: bool,
    /// True if the task is in a final state.
    pub is_finished: bool,
    /// The versions of extensions for the next turn ([`Note::Pins`](crate::Note::Pins)).
    pub pins: Option<Arc<str>>,
    /// The ids of the task at the upstream agent ([`Note::UpstreamTask`](crate::Note::UpstreamTask)).
    pub upstream: Option<Arc<str>>,
    pub(crate) content: TaskContent,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskContent {
    /// The JSON of the task, exactly as it was encoded.
    Json(Arc<str>),
    Value(TaskSnapshot),
}

impl StoredTask {
    /// True if the owner may see the task.
    #[must_use]
    pub fn is_of(&self, owner: &Owner) -> bool {
        self.key.owner() == owner
    }

    /// True if the task waits for its client and has no turn.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.is_finished && !self.is_worked_on
    }

    /// The approximate number of bytes to process when the task is read or written as JSON.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.content {
            TaskContent::Json(json) => json.len(),
            TaskContent::Value(task) => task.size().bytes,
        }
    }

    /// The task as JSON on one line.
    ///
    /// # Errors
    /// [`StoreError::Encoding`].
    pub fn json(&self) -> Result<Cow<'_, str>, StoreError> {
        match &self.content {
            TaskContent::Json(json) => Ok(Cow::Borrowed(json)),
            TaskContent::Value(task) => Ok(task.json()?),
        }
    }

    /// The task. Decodes the stored JSON if there is one.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] when the JSON has a form that this version of the software does not write.
    pub fn decode(&self) -> Result<TaskSnapshot, StoreError> {
        match &self.content {
            TaskContent::Json(json) => serde_json::from_str::<Task>(json)
                .map(TaskSnapshot::from)
                .map_err(|source| StoreError::unreadable_task(&self.id, source)),
            TaskContent::Value(task) => Ok(task.clone()),
        }
    }
}
