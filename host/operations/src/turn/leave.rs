//! The end of a turn whose task may belong to another process.

use std::mem;

use annex_leases::Replica;
use annex_protocol::ExtensionUri;

use super::{Stage, Turn};
use crate::counters::TurnEnd;
use crate::fault;
use crate::on_lost_turn::runs_again;

impl Turn {
    /// The replica of the turn. `None` if only one process can use the store.
    pub(super) fn runner(&self) -> Option<Replica> {
        self.stage.task().map_or_else(|| self.replica.clone(), |task| task.runner())
    }

    /// True if the task or the message may belong to another process.
    pub(super) fn is_lost(&self) -> bool {
        let is_over = || self.replica.as_ref().is_some_and(Replica::is_over);
        self.stage.task().map_or_else(is_over, |task| task.is_lost())
    }

    /// Hands the task over to another process that can continue the turn. True if it was handed over. Called when the
    /// server cannot wait for the turn any longer.
    pub(super) async fn is_handed_over(&mut self) -> bool {
        if self.stored.is_none() {
            return false;
        }
        // Another process needs a task, and a session that has the message.
        let is_new = matches!(self.stage, Stage::Opening { .. });
        if is_new && (!self.context.session.is_stored() || self.try_create(&[]).await.is_err()) {
            return false;
        }
        let Some(task) = self.stage.task().cloned() else { return false };
        // Following a task at an upstream repeats nothing, so it does not count as an attempt. Each process of a
        // rolling upgrade may thus hand the task over.
        let counts = self.stored.as_deref().is_some_and(runs_again);
        self.tasks.hand_over(&task, counts).await.unwrap_or_else(|error| {
            fault::log(&error);
            // The store may have made the write although it reported an error. If not, another process finds the task
            // after the lease of this one has ended.
            true
        })
    }

    /// Leaves the task to its new process. This turn writes nothing more to the task or the session. Readers of the
    /// task in this process get the events of the new one.
    pub(super) fn leave(&mut self) -> Vec<ExtensionUri> {
        let (tenant, context) = (self.tenant(), &self.context.context_id);
        tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "a turn stores no end, because another process may own its task");
        self.count(TurnEnd::Lost);
        self.pending.clear();
        self.context.session.drop_staged();
        self.tasks.pins().release(&self.context.task_id);
        match mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Joined { task, client } => {
                task.leave_turn();
                self.announce(client, &task, task.subscribe_to_turn());
            }
            Stage::Working { task } => task.leave_turn(),
            // Only the client knows about this turn.
            Stage::Accepted { client, .. } | Stage::Opening { client, .. } => {
                let _ = client.send(Err(fault::lost_place()));
            }
            Stage::Taskless | Stage::Ended => {}
        }
        self.active()
    }
}
