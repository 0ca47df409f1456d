//! Pins that all processes share through the store, if the store keeps pins. A pin of this process in memory takes
//! precedence while no other process has changed the task.

use std::sync::Arc;

use annex_protocol::{ExtensionUri, Owner, TaskId};
use annex_runtime::Extension;
use annex_tasks::{Interruption, StoreError, TaskPins};

use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

impl Tasks {
    /// Stores the pins of a task that begins to wait. Without pins there is nothing to store.
    pub(crate) async fn keep_pins(&self, task: &TaskId, held: Option<TaskPins>) -> Result<(), StoreError> {
        match (self.store.pins(), held) {
            (Some(store), Some(held)) => store.keep(task, &held).await,
            _ => Ok(()),
        }
    }

    /// The pinned versions of the task. Empty if the task has no pins.
    pub(crate) async fn pinned(&self, record: &TaskRecord) -> Result<Vec<Arc<Extension>>, StoreError> {
        let owner = record.owner();
        // Without installed extensions nothing can be pinned, and this process knows the tasks that it has interrupted
        // itself.
        let others_may_know = !record.last_is_ours() && !record.is_finished() && self.pins.has_installed(&owner.tenant);
        if let Some(store) = self.store.pins().filter(|_| others_may_know) {
            match store.find(record.id()).await? {
                Some((_, stored)) => self.pins.restore(owner, record.id(), &stored),
                None => self.pins.release(record.id()),
            }
        }
        Ok(self.pins.of(owner, record.id()))
    }

    /// The owner and the interruption of a task that `extension` of the tenant interrupted.
    pub(crate) async fn interrupted(
        &self,
        tenant: &str,
        task: &TaskId,
        extension: &ExtensionUri,
    ) -> Result<Option<(Owner, Interruption)>, StoreError> {
        let found = match self.store.pins() {
            Some(store) => store.find(task).await?.map(|(owner, pins)| (owner, pins.interruption)),
            None => self.pins.interruption(task),
        };
        let Some((owner, Some(interruption))) = found else { return Ok(None) };
        let is_theirs = owner.tenant == tenant && interruption.by == *extension;
        Ok(is_theirs.then_some((owner, interruption)))
    }

    /// True if an extension interrupted the task.
    pub(crate) async fn waits_for_extension(&self, task: &TaskId) -> Result<bool, StoreError> {
        let interruption = match self.store.pins() {
            Some(store) => store.find(task).await?.and_then(|(_, pins)| pins.interruption),
            None => self.pins.interruption(task).and_then(|(_, interruption)| interruption),
        };
        Ok(interruption.is_some())
    }

    /// Ends the task's interruption, because the task continues. Its pins stay.
    pub(crate) async fn go_on(&self, task: &TaskId) -> Result<(), StoreError> {
        let Some(interruption) = self.pins.end_interruption(task) else { return Ok(()) };
        match self.store.pins() {
            Some(store) => store.end_interruption(task, interruption.number).await.map(drop),
            None => Ok(()),
        }
    }
}
