//! Turns that their process has lost, and turns of this process that another one wants to be cancelled.

use std::time::Duration;

use annex_tasks::StoreError;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::fault;
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
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_well = true;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            let looked = async {
                self.end_asked().await?;
                self.fail_lost().await
            };
            let looked = looked.await;
            if let Err(error) = &looked
                && is_well
            {
                // Once, and not at each look as long as the database is away.
                drop(fault::logged(error));
            }
            is_well = looked.is_ok();
        }
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
