//! Pins as they are stored with a task: the versions of extensions for its next turn, and the extension that interrupted
//! the task. All processes share them.

use std::sync::Arc;

use annex_conversation::{Entry, Note, StoreError};
use annex_protocol::{ExtensionUri, Owner, TaskId};
use annex_runtime::Extension;
use serde::{Deserialize, Serialize};

use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

/// The extension versions for a waiting task, and the extension that interrupted the task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskPins {
    /// The versions that the task began with.
    pub(crate) versions: Vec<PinnedVersion>,
    /// Set if an extension made the task wait, until the next turn of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interruption: Option<Interruption>,
}

/// One version of one extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PinnedVersion {
    pub(crate) uri: ExtensionUri,
    /// A digest of its component.
    pub(crate) digest: String,
    /// A digest of the operator's settings for the extension.
    pub(crate) settings: String,
}

/// The reason why a task waits, when an extension made it wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interruption {
    /// The extension, which alone may resume the task.
    pub(crate) by: ExtensionUri,
    /// The extensions that the client requested, and those that were active without a request.
    pub(crate) requested: Vec<ExtensionUri>,
    /// The number of this interruption, unique among the interruptions of the task.
    pub(crate) number: u64,
}

impl TaskPins {
    /// The pins of a stored text. A text that this version of the software does not write has no pins.
    pub(crate) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The text to store. Encoding names and digests cannot fail.
    pub(crate) fn text(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl Tasks {
    /// The pinned versions of the task. Empty if the task has no pins.
    pub(crate) fn pinned(&self, record: &TaskRecord) -> Vec<Arc<Extension>> {
        match record.stored_pins().filter(|_| !record.is_finished()) {
            Some(text) => self.pins.of(record.owner(), record.id(), &text),
            None => Vec::new(),
        }
    }

    /// The owner and the interruption of a task that `extension` of the tenant interrupted.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn interrupted(
        &self,
        tenant: &str,
        task: &TaskId,
        extension: &ExtensionUri,
    ) -> Result<Option<(Owner, Interruption)>, StoreError> {
        let stored = self.store.task(task).await?.filter(|task| !task.is_finished);
        let Some((key, Some(text))) = stored.map(|task| (task.key, task.pins)) else { return Ok(None) };
        let owner = key.owner();
        let interruption = TaskPins::parse(&text).interruption;
        let theirs = interruption.filter(|waiting| owner.tenant == tenant && waiting.by == *extension);
        Ok(theirs.map(|interruption| (owner.clone(), interruption)))
    }

    /// True if an extension interrupted the task.
    pub(crate) fn waits_for_extension(record: &TaskRecord) -> bool {
        record.stored_pins().is_some_and(|text| TaskPins::parse(&text).interruption.is_some())
    }

    /// The entry that ends the interruption of the task, because the task continues. Its pins stay.
    pub(crate) fn end_of_interruption(record: &TaskRecord) -> Option<Entry> {
        let pins = TaskPins::parse(&record.stored_pins()?);
        pins.interruption.as_ref()?;
        Some(Entry::Note(Note::Pins(TaskPins { interruption: None, ..pins }.text())))
    }
}
