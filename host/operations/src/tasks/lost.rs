//! Turns whose process has lost them, and turns of this process that another one asks to cancel.

use std::time::Duration;

use annex_protocol::TaskId;
use annex_tasks::{LostTasks, LostTurn, StoreError};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::looks::look_until;
use crate::tasks::others::STOPPED;
use crate::tasks::record::TaskRecord;
use crate::tasks::{Tasks, Unsettled, failed};

/// The period of queries.
const LOOK: Duration = Duration::from_millis(500);

impl Tasks {
    /// Takes over the tasks of processes whose lease has ended, and cancels turns on request of other processes, until
    /// `stop` is cancelled. Returns at once with an exclusive store. Turns that can continue are passed to `go_on`;
    /// while this process drains, they are left to others.
    pub async fn watch_lost(
        &self,
        (go_on, drains): (impl Fn(LostTurn) + Sync, impl Fn() -> bool + Sync),
        stop: CancellationToken,
    ) {
        if !self.store.is_shared() {
            return;
        }
        let look = || async {
            self.end_asked().await?;
            let lost = if drains() {
                LostTasks { ended: self.store.recover_lost(STOPPED).await?, turns: Vec::new() }
            } else {
                self.store.take_lost(STOPPED).await?
            };
            self.tell_of_lost(&lost.ended);
            lost.turns.into_iter().for_each(&go_on);
            Ok::<_, StoreError>(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
    }

    fn tell_of_lost(&self, ended: &[TaskId]) {
        for task in ended {
            self.wake.tell(task.as_str(), 0);
        }
        if !ended.is_empty() {
            tracing::warn!(target: crate::LOG_TARGET, tasks = ended.len(), "failed tasks of a process that has ended");
        }
    }

    /// Leaves the task of a running turn to another process, if there is one. False if there is none. With `has_begun`,
    /// the turn counts as one of the task's attempts.
    pub(crate) async fn hand_over(&self, record: &TaskRecord, has_begun: bool) -> Result<bool, StoreError> {
        let Some(epoch) = record.epoch() else { return Ok(false) };
        if !self.store.has_others().await? || !self.store.hand_over(record.id(), epoch, has_begun).await? {
            return Ok(false);
        }
        self.wake.tell(record.id().as_str(), 0);
        Ok(true)
    }

    /// Like [`hand_over`](Self::hand_over), for a turn that this process has taken over and not begun.
    pub(crate) async fn hand_on(&self, lost: &LostTurn) {
        if let Err(error) = self.store.hand_over(&lost.task, lost.epoch, false).await {
            // Other processes take over the turn after the end of this process.
            fault::log(&error);
        }
    }

    /// Fails the task of a turn that this process has taken over and cannot continue.
    pub async fn fail_lost_turn(&self, lost: &LostTurn) {
        let failed = async {
            let found = self.find(&lost.owner, &lost.task).await;
            let Some(record) = found.inspect_err(|_| self.fail_later(lost))? else { return Ok(()) };
            // The task has ended, its turn has begun although the store reported an error, or another process has taken
            // over.
            if record.is_finished() || record.is_running() {
                return Ok(());
            }
            if !record.take(lost.epoch).await.inspect_err(|_| self.end_later(&record))? {
                return Ok(());
            }
            let stored = record.append([failed(&record, STOPPED)]).await;
            if stored.is_err() {
                self.end_later(&record);
            }
            self.leave_if_finished(&record);
            stored
        };
        match failed.await {
            Ok(()) | Err(StoreError::Fenced { .. }) => {}
            Err(error) => fault::log(&error),
        }
    }

    fn fail_later(&self, lost: &LostTurn) {
        let (owner, runner) = (lost.owner.clone(), self.store.replica());
        self.unsettled().insert(lost.task.clone(), Unsettled { owner, runner, epoch: Some(lost.epoch) });
    }

    /// Cancels the tenant's turns in this process. Each turn then cancels its task.
    pub fn stop_turns_of(&self, tenant: &str) {
        let live = self.live();
        live.records.values().filter(|record| record.owner().tenant == tenant).for_each(|record| record.stop_turn());
    }

    /// Cancels the turns that other processes ask to cancel, and the turns whose tasks other processes have taken over.
    /// A cancelled turn cancels its task, unless the task belongs to another process by then.
    pub(crate) async fn end_asked(&self) -> Result<(), StoreError> {
        let running: Vec<(TaskId, u64)> = {
            let live = self.live();
            let running = live.records.values().filter(|record| record.is_running());
            running.filter_map(|record| Some((record.id().clone(), record.epoch()?))).collect()
        };
        if running.is_empty() {
            return Ok(());
        }
        for id in self.store.turns_to_stop(&running).await? {
            let record = self.live().records.get(&id).cloned();
            if let Some(record) = record {
                record.stop_turn();
            }
        }
        Ok(())
    }
}
