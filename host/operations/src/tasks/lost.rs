//! Takes over turns that no process works on, and cancels turns of this process that another process asks to cancel.

use std::time::Duration;

use annex_conversation::{ConversationKey, Departure, EndOfLostTurn, Fence, LostTurn, StoreError, end_lost_turn};
use annex_protocol::TaskId;
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::looks::look_until;
use crate::tasks::{Tasks, queues};

/// The time between two queries.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum number of turns in one query.
const AT_ONCE: usize = 100;
/// The status message of a task whose process has ended.
const STOPPED: &str = "The server stopped while the task ran; send the message again.";

impl Tasks {
    /// Takes over turns that no process works on, and cancels turns on request of other processes, until `stop` is
    /// cancelled. Each turn is passed to `go_on`. While this process drains, turns are left to others.
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
    pub async fn end_turns_of_others(&self) -> Result<Vec<LostTurn>, StoreError> {
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

    /// Ends a turn that this process has taken over and cannot continue: its task fails, or is cancelled.
    pub async fn end_lost_turn(&self, lost: &LostTurn) {
        match end_lost_turn(self.store.as_ref(), lost, STOPPED).await {
            Ok(Some(EndOfLostTurn { entries, number, task })) => {
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
            }
            // Another process has taken the turn.
            Ok(None) => {}
            Err(error) => {
                fault::log(&error);
                self.hand_on(lost).await;
            }
        }
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
        let live = self.live();
        live.records.values().filter(|record| record.owner().tenant == tenant).for_each(|record| record.stop_turn());
    }

    /// Cancels the turns of this process that another process has asked to cancel or has taken over. A cancelled turn cancels
    /// its task, unless another process has taken the turn over.
    async fn end_asked(&self) -> Result<(), StoreError> {
        let running: Vec<(TaskId, Fence)> = {
            let live = self.live();
            live.records.values().filter_map(|record| Some((record.id().clone(), record.fence()?))).collect()
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
