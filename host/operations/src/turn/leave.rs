//! Ends a turn whose task may belong to another process.

use annex_conversation::Departure;
use annex_protocol::{A2aError, ExtensionUri};

use super::{Stage, Turn};
use crate::counters::TurnEnd;
use crate::fault;
use crate::on_lost_turn::OnLostTurn;

impl Turn {
    /// True if the turn may belong to another process.
    pub(super) fn is_lost(&self) -> bool {
        let conversation = &self.context.conversation;
        conversation.is_over() || conversation.fence().replica.is_over()
    }

    /// Hands the turn over to another process that can continue it. True if the turn was handed over. Called when the server
    /// cannot wait for the turn any longer.
    pub(super) async fn is_handed_over(&mut self) -> bool {
        let on_lost = self.handler.on_lost_turn;
        let others = self.handler.process.places.has_others();
        if on_lost == OnLostTurn::Fail || !others.await {
            return false;
        }
        // Following a task at an upstream repeats nothing, so it does not count as an attempt. Each process of a
        // rolling upgrade may thus hand the turn over.
        let departure = Departure::HandedOver { has_begun: on_lost == OnLostTurn::Rerun };
        if let Err(error) = self.context.conversation.leave(departure).await {
            // The turn is handed over when it is dropped.
            fault::log(&error);
        }
        true
    }

    /// Leaves the turn to its new process. This turn writes nothing more. Readers of the task in this process get the
    /// events that the new process stores.
    pub(super) fn leave(mut self) -> Vec<ExtensionUri> {
        let (tenant, context) = (self.tenant(), &self.context.context_id);
        tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "a turn stores no end, because another process may own its task");
        self.count(TurnEnd::Lost);
        self.pending.clear();
        self.handler.process.tasks.pins().release(&self.context.task_id);
        self.record.end_turn(self.context.conversation.fence(), true);
        self.announce();
        self.handler.process.tasks.wake().tell(self.record.id().as_str(), 0);
        self.stage = Stage::Ended;
        self.active()
    }

    /// Gives the turn up, because its end cannot be stored. Readers get all stored events and then the error. Any
    /// process can take the turn over once the store works again.
    pub(super) fn abandon(mut self, error: &A2aError) {
        self.stage = Stage::Ended;
        self.count(TurnEnd::Failed);
        let tasks = &self.handler.process.tasks;
        tasks.pins().release(self.record.id());
        tasks.remove(&self.record);
        self.record.end_turn(self.context.conversation.fence(), true);
        self.record.break_off(error.clone());
    }
}
