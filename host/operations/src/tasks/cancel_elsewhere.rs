//! CancelTask for a task that another process works on. That process is asked to cancel the turn, so that the hooks of
//! the turn run. If it does not respond, this process takes over the task and cancels it.

use std::sync::Arc;
use std::time::Duration;

use annex_fairness::of_same_tenant;
use annex_protocol::{A2aError, StreamResponse};
use annex_tasks::{AskedRunner, StoreError};
use tokio::time::{Instant, sleep};

use crate::fault;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

/// The longest wait for the other process.
const PATIENCE: Duration = Duration::from_secs(2);
/// The period of checking the task.
const LOOK: Duration = Duration::from_millis(100);

impl Tasks {
    /// Asks the process that works on the task to cancel it, and waits until it has. Returns the epoch for taking over
    /// the task, if that process has ended or does not cancel in time.
    pub(super) async fn ask_to_cancel(&self, record: &TaskRecord) -> Result<Option<u64>, StoreError> {
        let asked = self.store.ask_to_cancel(record.id()).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            record.refresh().await?;
            match asked {
                None => return Ok(None),
                Some(_) if !record.runs_elsewhere() => return Ok(None),
                Some(AskedRunner { epoch, is_alive }) if !is_alive || Instant::now() >= deadline => {
                    return Ok(Some(epoch));
                }
                Some(_) => sleep(LOOK).await,
            }
        }
    }

    /// Takes over the task in this epoch and cancels it.
    pub(super) async fn cancel_taken(
        self: &Arc<Self>,
        record: &Arc<TaskRecord>,
        epoch: u64,
        canceled: StreamResponse,
    ) -> Result<(), A2aError> {
        let tasks = Arc::clone(self);
        let record = Arc::clone(record);
        // A task of its own: if the client hung up between the two writes, the task would have no turn and no end.
        let canceling = tokio::spawn(of_same_tenant(async move {
            if !record.take(epoch).await? {
                return record.refresh().await;
            }
            let canceled = record.append([canceled]).await;
            if canceled.is_err() {
                tasks.end_later(&record);
            }
            canceled
        }));
        canceling.await.map_err(|error| fault::internal(&error))?.map_err(fault::of_store)
    }
}
