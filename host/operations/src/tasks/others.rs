//! What the other processes do that work on the same database: their tasks are failed when they are gone.

use std::time::Duration;

use annex_tasks::StoreError;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::tasks::Tasks;

/// The time between two looks at the other processes.
const LOOK: Duration = Duration::from_secs(1);
/// The last message of a task whose process is gone.
pub const STOPPED: &str = "The server stopped while the task ran; send the message again.";

impl Tasks {
    /// Watches the other processes until it is told to stop; at once where there are none.
    pub async fn watch_others(&self, stop: CancellationToken) {
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
            let looked = self.fail_lost().await;
            if let Err(error) = &looked
                && is_well
            {
                // Once, and not each second as long as the database is away.
                drop(fault::logged(error));
            }
            is_well = looked.is_ok();
        }
    }

    async fn fail_lost(&self) -> Result<(), StoreError> {
        let lost = self.store.recover_lost(STOPPED).await?;
        if !lost.is_empty() {
            tracing::warn!(target: crate::LOG_TARGET, tasks = lost.len(), "failed tasks of a process that is gone");
        }
        Ok(())
    }
}
