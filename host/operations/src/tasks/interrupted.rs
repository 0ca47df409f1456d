//! Tasks that an extension has interrupted, and the pinned versions of their next turn.

use std::sync::Arc;

use annex_conversation::{Entry, Note, StoreError};
use annex_protocol::{A2aError, ExtensionUri, Owner, TaskId};
use annex_runtime::Extension;

use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;
use crate::tasks::task_pins::{Interruption, TaskPins};

/// The number in place of the number of an interruption, for a task that no extension made wait.
const NO_INTERRUPTION: u64 = 0;

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

    /// The number of the interruption that the task waits with. [`NO_INTERRUPTION`] if no extension made the task wait.
    pub(crate) fn question(record: &TaskRecord) -> u64 {
        let pins = record.stored_pins().map(|text| TaskPins::parse(&text)).unwrap_or_default();
        pins.interruption.map_or(NO_INTERRUPTION, |waiting| waiting.number)
    }

    /// Checks that the task still waits with the question that it had when the message came. `asked` is the result of
    /// [`question`](Self::question) at that time. `None` for a message that needs no check.
    ///
    /// # Errors
    /// The task has asked something else in the meantime, which the client of the message may not have seen.
    pub(crate) fn check_question(record: &TaskRecord, asked: Option<u64>) -> Result<(), A2aError> {
        if asked.is_none_or(|asked| asked == Self::question(record)) {
            return Ok(());
        }
        let task_id = record.id();
        let reason = format!(
            "task {task_id} has asked something else since the message came; read the new question in the task, and send \
             the message again if it answers that question"
        );
        Err(A2aError::UnsupportedOperation { reason })
    }

    /// The entry that ends the interruption of the task, because the task continues. The pins of the task stay.
    pub(crate) fn end_of_interruption(record: &TaskRecord) -> Option<Entry> {
        let pins = TaskPins::parse(&record.stored_pins()?);
        pins.interruption.as_ref()?;
        Some(Entry::Note(Note::Pins(TaskPins { interruption: None, ..pins }.text())))
    }
}
