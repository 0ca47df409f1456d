//! Reads the events that other processes store for tasks with a reader in this process. `lost.rs` handles tasks of processes
//! that have ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use annex_conversation::StoreError;
use annex_leases::wake::{Hint, Notice};
use annex_protocol::TaskId;
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use crate::looks::look_until;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

/// The time between two searches for events that other processes have stored.
const LOOK: Duration = Duration::from_secs(1);
/// The maximum number of tasks that are read at the same time because other processes sent hints about them.
const AT_ONCE: usize = 4;
/// The maximum number of tasks in one query.
const FOLLOWED: usize = 1_000;

impl Tasks {
    /// Reads the events that other processes store, until `stop` is cancelled. Returns at once with a store in memory, which no
    /// other process can use. With a file, another process stores events only while the server restarts: the next process may
    /// open the file before this process has ended.
    pub async fn watch_others(&self, stop: CancellationToken) {
        if self.process.store_outlives() {
            let looking = look_until(stop.cancelled(), LOOK, || self.read_on());
            tokio::join!(looking, self.hear_others(&stop));
        }
    }

    /// Reads events as soon as another process sends a notification, without waiting for the next query.
    async fn hear_others(&self, stop: &CancellationToken) {
        let mut hints = self.wake.hints();
        loop {
            let heard = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                heard = hints.next() => heard,
            };
            let read = match heard {
                Notice::Hints(hints) => {
                    hints.iter().for_each(|hint| self.queues.hint(&hint.id, self.store.as_ref()));
                    self.read_on_about(&hints).await
                }
                Notice::Lost => {
                    self.queues.hint_all(self.store.as_ref());
                    self.read_on().await
                }
            };
            if let Err(error) = read {
                // The periodic query logs the failure as a warning.
                tracing::debug!(target: crate::LOG_TARGET, %error, "events of another process cannot be read");
            }
        }
    }

    /// Reads the new events of all tasks that have a reader, but no turn in this process.
    async fn read_on(&self) -> Result<(), StoreError> {
        let followed = self.followed();
        for followed in followed.chunks(FOLLOWED) {
            let records: HashMap<&TaskId, &Arc<TaskRecord>> =
                followed.iter().map(|(record, _)| (record.id(), record)).collect();
            let known: Vec<_> = followed.iter().map(|(record, last)| (record.id().clone(), *last)).collect();
            for (id, last) in self.store.changed(&known).await? {
                let Some(record) = records.get(&id) else { continue };
                if last.is_none() {
                    self.let_go(&id);
                    continue;
                }
                self.read_on_one(record).await?;
            }
        }
        Ok(())
    }

    /// Reads the new events of the tasks that `hints` names, like [`read_on`](Self::read_on).
    async fn read_on_about(&self, hints: &[Hint]) -> Result<(), StoreError> {
        let told: Vec<Arc<TaskRecord>> = {
            let live = self.live();
            let told = hints.iter().filter_map(|hint| {
                let record = live.records.get(&TaskId::from(hint.id.as_str()))?;
                let is_behind = hint.seq == 0 || record.last().is_none_or(|last| last < hint.seq);
                (is_behind && !record.is_running() && record.has_readers()).then(|| Arc::clone(record))
            });
            told.collect()
        };
        for told in told.chunks(AT_ONCE) {
            try_join_all(told.iter().map(|record| self.read_on_one(record))).await?;
        }
        Ok(())
    }

    async fn read_on_one(&self, record: &Arc<TaskRecord>) -> Result<(), StoreError> {
        match record.refresh().await {
            Err(error @ StoreError::Unreadable { .. }) => {
                let id = record.id();
                tracing::error!(target: crate::LOG_TARGET, task = %id, %error, "a task cannot be read any further");
                self.let_go(id);
            }
            read => read?,
        }
        self.leave_if_finished(record);
        Ok(())
    }

    /// The records that have a reader, but no turn in this process. Each comes with the number of its last event.
    fn followed(&self) -> Vec<(Arc<TaskRecord>, u64)> {
        let live = self.live();
        let followed = live.records.values().filter(|record| !record.is_running() && record.has_readers());
        followed.filter_map(|record| Some((Arc::clone(record), record.last()?))).collect()
    }
}
