//! The end of a turn whose task may be another process's by now.

use std::mem;

use annex_leases::Replica;
use annex_protocol::ExtensionUri;

use super::{Stage, Turn};
use crate::counters::TurnEnd;
use crate::fault;
use crate::on_lost_turn::runs_again;

impl Turn {
    /// The replica that the turn belongs to, where its task can be another process's, or its message before there is a task.
    pub(super) fn runner(&self) -> Option<Replica> {
        self.stage.task().map_or_else(|| self.replica.clone(), |task| task.runner())
    }

    /// True if the task, or the message, may be another process's by now.
    pub(super) fn is_lost(&self) -> bool {
        let is_over = || self.replica.as_ref().is_some_and(Replica::is_over);
        self.stage.task().map_or_else(is_over, |task| task.is_lost())
    }

    /// Leaves the task of a turn that the server cannot wait for to another process, if one is there that can go on with it.
    pub(super) async fn is_handed_over(&mut self) -> bool {
        if self.stored.is_none() {
            return false;
        }
        // Whoever goes on needs a task, and a session that has the message.
        let is_new = matches!(self.stage, Stage::Opening { .. });
        if is_new && (!self.context.session.is_stored() || self.try_create(&[]).await.is_err()) {
            return false;
        }
        let Some(task) = self.stage.task().cloned() else { return false };
        // Whoever follows a task elsewhere does nothing twice, so that each process of an upgrade may hand it over.
        let counts = self.stored.as_deref().is_some_and(runs_again);
        self.tasks.hand_over(&task, counts).await.unwrap_or_else(|error| {
            fault::log(&error);
            // It may have been stored. Where it was not, the task is found once the lease of this process is over.
            true
        })
    }

    /// Leaves the task to whoever has it. Nothing more is written for this turn, neither to the task nor to the session, and
    /// whoever reads the task here reads what becomes of it there.
    pub(super) fn leave(&mut self) -> Vec<ExtensionUri> {
        let (tenant, context) = (self.tenant(), &self.context.context_id);
        tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "a turn ends without a word, because its task may be another process's");
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
            // Nobody knows of this turn but its client.
            Stage::Accepted { client, .. } | Stage::Opening { client, .. } => {
                let _ = client.send(Err(fault::lost_place()));
            }
            Stage::Taskless | Stage::Ended => {}
        }
        self.active()
    }
}
