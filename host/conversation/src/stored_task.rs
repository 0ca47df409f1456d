//! A task as it is stored.

use std::borrow::Cow;
use std::sync::Arc;

use annex_protocol::{StreamResponse, Task, TaskId, Timestamp};

use crate::encoding::{self, Kind};
use crate::entry::Entry;
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
    /// The kinds and the JSON of all entries of the task, in order. Databases store a large task only in this form.
    Entries(Vec<(Kind, String)>),
    Value(TaskSnapshot),
}

impl TaskContent {
    /// The approximate number of bytes to process when the task is read or written as JSON.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Entries(entries) => entries.iter().map(|(_, json)| json.len()).sum(),
            Self::Value(task) => task.size().bytes,
        }
    }
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
        self.content.bytes()
    }

    /// The task as JSON on one line.
    ///
    /// # Errors
    /// [`StoreError::Encoding`], and the errors of [`decode`](Self::decode).
    pub fn json(&self) -> Result<Cow<'_, str>, StoreError> {
        match &self.content {
            TaskContent::Json(json) => Ok(Cow::Borrowed(json)),
            TaskContent::Entries(_) => Ok(Cow::Owned(self.decode()?.json()?.into_owned())),
            TaskContent::Value(task) => Ok(task.json()?),
        }
    }

    /// The task. Decodes the stored JSON if there is any, which takes long for a large task.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] when the JSON has a form that this version of the software does not write.
    pub fn decode(&self) -> Result<TaskSnapshot, StoreError> {
        let decoded = match &self.content {
            TaskContent::Json(json) => serde_json::from_str::<Task>(json).map(TaskSnapshot::from),
            TaskContent::Entries(entries) => self.decode_entries(entries),
            TaskContent::Value(task) => Ok(task.clone()),
        };
        decoded.map_err(|source| StoreError::unreadable_task(&self.id, source))
    }

    /// Decodes the entries, and returns the task with all entries applied in order. If the first entry contains a whole task,
    /// the other entries are applied to that task. Otherwise all entries are applied to a SUBMITTED task.
    fn decode_entries(&self, entries: &[(Kind, String)]) -> Result<TaskSnapshot, serde_json::Error> {
        let decoded = entries.iter().map(|(kind, json)| encoding::decode(*kind, json));
        let entries = decoded.collect::<Result<Vec<_>, _>>()?;
        if let Some((Entry::Update(first), rest)) = entries.split_first()
            && let StreamResponse::Task(task) = first.as_ref()
        {
            return Ok(TaskSnapshot::from(Task::clone(task)).with(rest));
        }
        let since = entries.iter().find_map(|entry| match entry {
            Entry::Message(message) => message.opens,
            Entry::Event(_) | Entry::Update(_) | Entry::Note(_) => None,
        });
        let since = since.unwrap_or_else(Timestamp::now);
        Ok(TaskSnapshot::submitted(self.id.clone(), self.key.context.clone(), since).with(&entries))
    }
}
