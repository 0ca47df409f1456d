//! The outcomes of a turn without a task: an answer that is a message, and a refusal by the agent.

use annex_conversation::{AppendError, Entry};
use annex_protocol::{A2aError, Message, StreamResponse, TaskState};

use super::{Ending, Outcome, Progress, Stage, Turn, TurnResult, closing_event};
use crate::counters::TurnEnd;
use crate::fault;
use crate::receipts::note_of;

impl Turn {
    /// Answers with a message instead of a task. That is possible only as the agent's first event.
    pub(super) async fn answer(&mut self, mut message: Message) -> Result<Progress, A2aError> {
        if matches!(self.stage, Stage::Working) && self.opened && self.turn_task.state().is_none() {
            // The client has the task already, because the message had to wait. The task gets the answer.
            let settled = self.status(TaskState::Completed, Some(message)).await?;
            return Ok(Progress::Ends(Ending::Returned(Ok(()), settled)));
        }
        // A chunk that an extension holds back has begun the task, although nothing of it is pending.
        let has_artifacts = self.shown.as_ref().is_some_and(|shown| shown.has_artifacts());
        if has_artifacts
            || !self.pending.is_empty()
            || !matches!(self.stage, Stage::Opening { .. } | Stage::Joined { .. })
        {
            let reason = "the agent sent a message after its task had begun".to_owned();
            return Err(A2aError::InvalidAgentResponse { reason });
        }
        message.context_id = Some(self.context.context_id.clone());
        let mut event = StreamResponse::Message(message);
        if self.chain.revises_output() {
            // A refused answer fails the task, which the store has.
            let Some(revised) = Box::pin(self.revised(event)).await? else { return Ok(Progress::GoesOn) };
            event = revised;
        }
        let answer = match (self.chain.run_response_hooks(&mut event).await, event) {
            (Ok(()), StreamResponse::Message(message)) => Ok(message),
            (Ok(()), _) => {
                let reason = "an extension replaced the message by another kind of event".to_owned();
                Err(A2aError::InvalidAgentResponse { reason })
            }
            (Err(fault), _) => Err(fault::of_extension(&fault)),
        };
        match (answer, &self.stage) {
            (Ok(message), Stage::Opening { .. }) => Ok(Progress::Ends(Ending::Answered(message))),
            (Err(error), Stage::Opening { .. }) => {
                Ok(Progress::Ends(Ending::Returned(Err(annex_agent::AgentError::Refused(error)), None)))
            }
            // The task existed before, and goes on. The client gets the message.
            (answer, _) => {
                let active = self.active();
                let outcome = answer.map(|message| Outcome::Message { message: Box::new(message), active });
                if let Some(client) = self.take_client() {
                    // A client that has hung up needs no answer.
                    let _ = client.send(outcome);
                }
                Ok(Progress::GoesOn)
            }
        }
    }

    /// Ends the turn with a message. The task is deleted, and a repeated message gets the same answer.
    pub(super) async fn end_with_answer(mut self, mut message: Message) -> TurnResult {
        self.drop_task_metadata();
        let mut entries = self.closing(None);
        let signed = self.sign_answer(&mut message);
        entries.extend(signed.as_ref().map(note_of));
        self.amend_session().await;
        let stored = self.context.conversation.answer(&entries, &message).await.map(drop);
        if let (Ok(()), Some(signed)) = (&stored, signed) {
            self.send_copy(signed);
        }
        let active = self.active();
        self.end_without_task(stored, |active| Ok(Outcome::Message { message: Box::new(message), active }), active)
    }

    /// Logs that extensions have set metadata of a task that does not come to be.
    fn drop_task_metadata(&mut self) {
        let entries = self.chain.take_task_metadata();
        if !entries.is_empty() {
            let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
            let (tenant, context) = (self.tenant(), &self.context.context_id);
            tracing::debug!(target: crate::LOG_TARGET, tenant, %context, ?keys, "the turn ends without a task, so its metadata is dropped");
        }
    }

    /// Ends the turn with a refusal by the agent. The task is deleted, and a repeated message is new.
    pub(super) async fn end_with_refusal(mut self, error: A2aError) -> TurnResult {
        let error = Box::pin(self.revised_refusal(error)).await;
        let entries = self.closing(Some((TaskState::Rejected, Some(error.to_string()))));
        self.amend_session().await;
        let stored = self.context.conversation.refuse(&entries).await.map(drop);
        self.end_without_task(stored, |_| Err(error), Vec::new())
    }

    fn end_without_task(
        mut self,
        stored: Result<(), AppendError>,
        outcome: impl FnOnce(Vec<annex_protocol::ExtensionUri>) -> Result<Outcome, A2aError>,
        active: Vec<annex_protocol::ExtensionUri>,
    ) -> TurnResult {
        if let Err(error) = stored {
            if self.is_lost() {
                return Ok(self.leave());
            }
            let error = fault::of_append(error);
            self.tell_error(error.clone());
            self.abandon(&error);
            return Err(error);
        }
        self.handler.process.tasks.tell_queue(self.record.key());
        let client = self.take_client();
        self.stage = Stage::Ended;
        self.count(TurnEnd::Taskless);
        // Whoever has opened the task in between learns that it is gone.
        self.handler.process.tasks.let_go(self.record.id());
        self.record.end_turn(self.context.conversation.fence(), false);
        if let Some(client) = client {
            let _ = client.send(outcome(active.clone()));
        }
        Ok(active)
    }

    /// The event that closes the message of the user in the history. Empty if the history already has an answer to the
    /// message.
    pub(super) fn closing(&self, state: Option<(TaskState, Option<String>)>) -> Vec<Entry> {
        let conversation = &self.context.conversation;
        let event = conversation.is_unanswered().then(|| closing_event(conversation, self.record.id(), state));
        event.into_iter().map(Entry::from).collect()
    }
}
