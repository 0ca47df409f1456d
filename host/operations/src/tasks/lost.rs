//! Turns that their process has lost, and turns of this process that another one wants to be cancelled.

use std::time::Duration;

use annex_tasks::StoreError;
use tokio_util::sync::CancellationToken;

use crate::looks::look_until;
use crate::tasks::Tasks;
use crate::tasks::others::STOPPED;

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(500);

impl Tasks {
    /// Takes over the tasks of processes whose lease is over, and cancels what others want to be cancelled here, until it is
    /// told to stop; ends at once where there are no other processes.
    pub async fn watch_lost(&self, stop: CancellationToken) {
        if !self.store.is_shared() {
            return;
        }
        let look = || async {
            self.end_asked().await?;
            self.fail_lost().await
        };
        look_until(stop.cancelled(), LOOK, look).await;
    }

    async fn fail_lost(&self) -> Result<(), StoreError> {
        let lost = self.store.recover_lost(STOPPED).await?;
        for task in &lost {
            self.wake.tell(task.as_str(), 0);
        }
        if !lost.is_empty() {
            tracing::warn!(target: crate::LOG_TARGET, tasks = lost.len(), "failed tasks of a process that is gone");
        }
        Ok(())
    }

    /// Stops the turns of a tenant that run here. Each cancels its task itself.
    pub fn stop_turns_of(&self, tenant: &str) {
        let live = self.live();
        live.records.values().filter(|record| record.owner().tenant == tenant).for_each(|record| record.stop_turn());
    }

    /// Stops the turns that other processes were asked to cancel. Each cancels its task itself.
    pub(crate) async fn end_asked(&self) -> Result<(), StoreError> {
        if !self.live().records.values().any(|record| record.is_running()) {
            return Ok(());
        }
        for id in self.store.asked_to_cancel().await? {
            let record = self.live().records.get(&id).cloned();
            if let Some(record) = record {
                record.stop_turn();
            }
        }
        Ok(())
    }
}
