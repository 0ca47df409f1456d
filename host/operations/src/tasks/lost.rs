//! Takes over turns that no process works on, and cancels turns of this process that another process asks to cancel.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use annex_conversation::{
    AppendError, ConversationKey, Departure, EndOfLostTurn, Fence, LostTurn, StoreError, end_lost_turn,
};
use annex_fairness::of_same_tenant;
use annex_protocol::TaskId;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::looks::look_until;
use crate::tasks::record::TaskRecord;
use crate::tasks::{Tasks, queues};

/// The time between two searches for lost turns and for requests to cancel.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum number of turns in one query.
const AT_ONCE: usize = 100;
/// The number of attempts to end a lost turn until the log has a line for the operator. The pauses between attempts
/// double.
const ATTEMPTS: u64 = 6;
/// The pause between further attempts.
const REST: Duration = Duration::from_secs(60 * 60);
/// The status message of a task whose process has ended.
const STOPPED: &str = "The server stopped while the task ran; send the message again.";

impl Tasks {
    /// Takes over turns that no process works on, and cancels turns on request of other processes, until `stop` is
    /// cancelled. Each turn is passed to `go_on`. While this process drains, turns are left to other processes.
    pub async fn watch_lost(
        &self,
        (go_on, drains): (impl Fn(LostTurn) + Sync, impl Fn() -> bool + Sync),
        stop: CancellationToken,
    ) {
        let look = || async {
            if self.process.is_shared() {
                self.end_asked().await?;
            }
            if !drains() {
                self.take_lost().await?.into_iter().for_each(&go_on);
            }
            Ok::<_, StoreError>(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
    }

    /// Takes over turns that no process works on.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take_lost(&self) -> Result<Vec<LostTurn>, StoreError> {
        if !self.process.may_judge() {
            return Ok(Vec::new());
        }
        self.store.take_lost(&self.process.replica(), AT_ONCE).await
    }

    /// Takes over the turns that no process works on. Called at the start of the server. Ends the turns that cannot
    /// continue, and returns the turns that can.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn end_turns_of_others(self: &Arc<Self>) -> Result<Vec<LostTurn>, StoreError> {
        let mut all = Vec::new();
        loop {
            let lost = self.take_lost().await?;
            if lost.is_empty() {
                break;
            }
            all.extend(lost);
        }
        let (ends, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|lost| lost.has_begun && lost.resume.is_none());
        for lost in &ends {
            self.end_lost_turn(lost).await;
        }
        Ok(others)
    }

    /// Ends a turn that this process has taken over and cannot continue: its task fails, or is cancelled. If the store
    /// fails, other processes may take the turn. If the turn cannot be ended for another reason, this process keeps it.
    pub async fn end_lost_turn(self: &Arc<Self>, lost: &LostTurn) {
        let Err(error) = self.try_to_end(lost).await else { return };
        fault::log(&error);
        if matches!(error, AppendError::Store(StoreError::Database(_))) {
            return self.hand_on(lost).await;
        }
        let (tasks, lost) = (Arc::clone(self), lost.clone());
        tokio::spawn(of_same_tenant(async move { tasks.keep_ending(&lost).await }));
    }

    /// Tries again to end a turn, with longer and longer pauses, until the lease of this process ends. Another process
    /// would meet the same error, for example a task that cannot be read.
    async fn keep_ending(&self, lost: &LostTurn) {
        let mut pause = LOOK;
        for attempt in 2_u64.. {
            sleep(pause).await;
            if lost.fence.replica.is_over() {
                return;
            }
            let Err(error) = self.try_to_end(lost).await else { return };
            pause = if attempt < ATTEMPTS { pause * 2 } else { REST };
            if attempt == ATTEMPTS {
                let error = fault::text(&error);
                tracing::error!(target: crate::LOG_TARGET, task = %lost.task, error, "the task of a process that has ended cannot be failed, so its conversation runs no turn; mend the stored task: the server tries again each hour");
            }
        }
    }

    async fn try_to_end(&self, lost: &LostTurn) -> Result<(), AppendError> {
        // Without an end, another process has taken the turn.
        let Some(EndOfLostTurn { entries, number, task }) = end_lost_turn(self.store.as_ref(), lost, STOPPED).await?
        else {
            return Ok(());
        };
        let state = task.state();
        let record = self.live().records.get(&lost.task).cloned();
        match record {
            Some(record) => {
                record.show(&entries, number, task);
                self.leave_if_finished(&record);
            }
            None => self.wake.tell(lost.task.as_str(), number),
        }
        self.tell_queue(&lost.key);
        tracing::warn!(target: crate::LOG_TARGET, task = %lost.task, state = state.name(), "ended the task of a process that has ended");
        Ok(())
    }

    /// Hands a turn on to other processes. This process has taken the turn over but has not begun it.
    pub(crate) async fn hand_on(&self, lost: &LostTurn) {
        let departure = Departure::HandedOver { has_begun: false };
        if let Err(error) = self.store.leave(&lost.key, &lost.fence, departure).await {
            // Other processes take over the turn after the end of this process.
            fault::log(&error);
        }
    }

    /// Notifies other processes that a turn has left the queue of a conversation.
    pub(crate) fn tell_queue(&self, key: &ConversationKey) {
        if self.process.is_shared() {
            queues::tell(self.wake.as_ref(), key);
        }
    }

    /// Cancels the tenant's turns in this process. Each turn then cancels its task.
    pub fn stop_turns_of(&self, tenant: &str) {
        for (record, fence) in self.running().values().filter(|(record, _)| record.owner().tenant == tenant) {
            record.stop_turn(fence);
        }
    }

    /// The tasks with a turn in this process, each with the fence of the turn.
    fn running(&self) -> HashMap<TaskId, (Arc<TaskRecord>, Fence)> {
        let live = self.live();
        let running = live.records.values().filter_map(|record| Some((Arc::clone(record), record.fence()?)));
        running.map(|(record, fence)| (record.id().clone(), (record, fence))).collect()
    }

    /// Cancels the turns of this process that another process has asked to cancel or has taken over. A cancelled turn cancels
    /// its task, unless another process has taken the turn over.
    async fn end_asked(&self) -> Result<(), StoreError> {
        let running = self.running();
        if running.is_empty() {
            return Ok(());
        }
        let fences: Vec<_> = running.iter().map(|(id, (_, fence))| (id.clone(), fence.clone())).collect();
        for id in self.store.turns_to_stop(&fences).await? {
            // The task may have got its next turn in the meantime.
            if let Some((record, fence)) = running.get(&id) {
                record.stop_turn(fence);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use annex_conversation::{
        ConversationKey, Fence, Keep, MemoryBounds, MemoryStore, Retention, TaskLimits, TaskSnapshot, WaitingBounds,
    };
    use annex_leases::wake::LocalWake;
    use annex_protocol::{ContextId, Owner, TaskId, Timestamp};
    use tokio_util::sync::CancellationToken;

    use super::{Arc, TaskRecord, Tasks};
    use crate::process::Process;
    use crate::tasks::TaskBounds;
    use crate::tasks::pins::Pins;
    use crate::tasks::running_turn::RunningTurn;

    fn tasks() -> Arc<Tasks> {
        let store = Arc::new(MemoryStore::new(MemoryBounds::default()));
        let limits = TaskLimits { bytes: 1 << 20, messages: 100, artifacts: 100 };
        let retention = Retention { conversations: Keep::ALL, tasks: Keep::ALL, waiting: WaitingBounds::UNBOUNDED };
        let bounds = TaskBounds { limits, retention };
        Tasks::new((store, Process::with_memory()), Arc::new(Pins::default()), bounds, Arc::new(LocalWake))
    }

    /// Makes a turn with this number in the process `one`.
    fn turn(epoch: u64) -> (Fence, CancellationToken, RunningTurn) {
        let (fence, cancel) = (Fence { replica: "one".into(), epoch }, CancellationToken::new());
        (fence.clone(), cancel.clone(), RunningTurn::new(cancel, fence, true))
    }

    #[test]
    fn a_turn_that_is_asked_to_stop_does_not_stop_the_next_turn_of_its_task() {
        let tasks = tasks();
        let context = ContextId::new("c");
        let key = ConversationKey::of("agent", &Owner::default(), &context);
        let task = TaskSnapshot::submitted(TaskId::from("t"), context, Timestamp::now());
        let ((first, first_cancel, first_turn), (second, second_cancel, second_turn)) = (turn(1), turn(2));
        let record = TaskRecord::new(key, task, first_turn, &tasks);
        record.begin_turn(second_turn);
        record.stop_turn(&first);
        assert!(!first_cancel.is_cancelled() && !second_cancel.is_cancelled());
        record.stop_turn(&second);
        assert!(second_cancel.is_cancelled());
    }
}
