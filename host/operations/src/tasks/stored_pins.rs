//! Pins as all processes know them: in the store, where it keeps them, and in memory for as long as this process alone
//! decides about the task.

use std::sync::Arc;

use annex_protocol::{ExtensionUri, Owner, TaskId};
use annex_runtime::Extension;
use annex_tasks::{Interruption, StoreError, TaskPins};

use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

impl Tasks {
    /// Keeps what a task that is about to wait goes on with; `None` where that is nothing, which costs nothing.
    pub(crate) async fn keep_pins(&self, task: &TaskId, held: Option<TaskPins>) -> Result<(), StoreError> {
        match (self.store.pins(), held) {
            (Some(store), Some(held)) => store.keep(task, &held).await,
            _ => Ok(()),
        }
    }

    /// The versions that the task goes on with. Empty where it has pinned none.
    pub(crate) async fn pinned(&self, record: &TaskRecord) -> Result<Vec<Arc<Extension>>, StoreError> {
        let owner = record.owner();
        // Where nothing is installed there is nothing to pin, and what this process let wait it knows.
        let others_may_know = !record.last_is_ours() && !record.is_finished() && self.pins.has_installed(&owner.tenant);
        if let Some(store) = self.store.pins().filter(|_| others_may_know) {
            match store.find(record.id()).await? {
                Some((_, stored)) => self.pins.restore(owner, record.id(), &stored),
                None => self.pins.release(record.id()),
            }
        }
        Ok(self.pins.of(owner, record.id()))
    }

    /// The owner of a task that `extension` of the tenant made wait, and that interruption.
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

    /// True if an extension made the task wait.
    pub(crate) async fn waits_for_extension(&self, task: &TaskId) -> Result<bool, StoreError> {
        let interruption = match self.store.pins() {
            Some(store) => store.find(task).await?.and_then(|(_, pins)| pins.interruption),
            None => self.pins.interruption(task).and_then(|(_, interruption)| interruption),
        };
        Ok(interruption.is_some())
    }

    /// The task goes on, whoever took it up, which ends its interruption. Its pins stay.
    pub(crate) async fn go_on(&self, task: &TaskId) -> Result<(), StoreError> {
        let Some(interruption) = self.pins.end_interruption(task) else { return Ok(()) };
        match self.store.pins() {
            Some(store) => store.end_interruption(task, interruption.number).await.map(drop),
            None => Ok(()),
        }
    }
}
