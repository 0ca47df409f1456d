//! The events of the agent on their way to the store.

use std::mem;

use annex_agent::AgentEvent;
use annex_protocol::{A2aError, ArtifactId, Message, StreamResponse, TaskArtifactUpdateEvent, TaskState, Timestamp};
use tokio::sync::mpsc;

use super::{EVENTS_IN_FLIGHT, Outcome, Settled, Stage, Turn};
use crate::fault;

impl Turn {
    /// Stores the event and the events that are queued behind it.
    pub(super) async fn deliver(
        &mut self,
        event: AgentEvent,
        waiting: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<Settled, A2aError> {
        let taken = self.take(Some(event), waiting).await;
        // Events from before a fault are stored anyway.
        let stored = self.store().await;
        let settled = taken?;
        stored?;
        Ok(settled)
    }

    /// Processes `next` and the queued events, up to one that settles the task.
    pub(super) async fn take(
        &mut self,
        mut next: Option<AgentEvent>,
        waiting: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<Settled, A2aError> {
        while let Some(event) = next {
            let settled = self.take_one(event).await?;
            if settled.is_some() {
                return Ok(settled);
            }
            let is_full = self.pending.len() >= EVENTS_IN_FLIGHT;
            next = if is_full { None } else { waiting.try_recv().ok() };
        }
        Ok(None)
    }

    async fn take_one(&mut self, mut event: AgentEvent) -> Result<Settled, A2aError> {
        if matches!(self.stage, Stage::Taskless) {
            // The client has its answer, and there is no task to change.
            return Ok(None);
        }
        self.agent.before_event(&self.context.session, &mut event);
        match event {
            AgentEvent::Message(message) => self.answer(message).await.map(|()| None),
            AgentEvent::Status { state, message } => self.status(state, message).await,
            AgentEvent::Relayed(event) => self.relay(*event).await,
            AgentEvent::Begun => self.open_task().await.map(|()| None),
            AgentEvent::Artifact { artifact, append, last_chunk } => {
                let update = TaskArtifactUpdateEvent {
                    task_id: self.context.task_id.clone(),
                    context_id: self.context.context_id.clone(),
                    artifact,
                    append,
                    last_chunk,
                    ..TaskArtifactUpdateEvent::default()
                };
                self.respond(StreamResponse::ArtifactUpdate(update)).await.map(|()| None)
            }
        }
    }

    /// Answers with a message instead of a task. That is possible only as the agent's first event.
    pub(super) async fn answer(&mut self, mut message: Message) -> Result<(), A2aError> {
        if !self.pending.is_empty() || !matches!(self.stage, Stage::Opening { .. } | Stage::Joined { .. }) {
            let reason = "the agent sent a message after its task had begun".to_owned();
            return Err(A2aError::InvalidAgentResponse { reason });
        }
        message.context_id = Some(self.context.context_id.clone());
        // The user's message must be stored before the client gets anything.
        if let Err(error) = self.context.session.store().await.map_err(|error| fault::of_session(&error)) {
            self.roll_back(error.clone());
            return Err(error);
        }
        let mut event = StreamResponse::Message(message);
        let answer = match (self.chain.run_response_hooks(&mut event).await, event) {
            (Ok(()), StreamResponse::Message(message)) => Ok(message),
            (Ok(()), _) => {
                let reason = "an extension replaced the message by another kind of event".to_owned();
                Err(A2aError::InvalidAgentResponse { reason })
            }
            (Err(fault), _) => Err(fault::of_extension(&fault)),
        };
        let (client, delivery) = match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Opening { client, delivery } => (client, delivery),
            Stage::Joined { task, client } => {
                self.stage = Stage::Working { task };
                (client, None)
            }
            other => {
                self.stage = other;
                return Ok(());
            }
        };
        if let (Ok(message), Some(delivery)) = (&answer, delivery) {
            delivery.answer(message).await;
        }
        let outcome = answer.map(|message| Outcome::Message { message: Box::new(message), active: self.active() });
        // A client that has hung up needs no answer.
        let _ = client.send(outcome);
        Ok(())
    }

    fn has_artifact(&self, id: &ArtifactId) -> bool {
        let is_pending = |event: &StreamResponse| match event {
            StreamResponse::ArtifactUpdate(update) => update.artifact.artifact_id == *id,
            StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) => false,
        };
        self.pending.iter().any(is_pending) || self.stage.task().is_some_and(|task| task.snapshot().has_artifact(id))
    }

    /// Runs the response hooks on the event, which is then ready to be stored.
    pub(super) async fn respond(&mut self, mut event: StreamResponse) -> Result<(), A2aError> {
        // The hooks run before the task is stored together with its first events. For the hooks the task already
        // exists.
        if self.stage.task().is_none() && self.pending.is_empty() {
            self.turn_task.show(TaskState::Submitted, Some(Timestamp::now()));
        }
        if let StreamResponse::ArtifactUpdate(update) = &mut event {
            // Official clients fail on a chunk that appends to an unknown artifact, even on a relayed one.
            update.append = update.append && self.has_artifact(&update.artifact.artifact_id);
        }
        self.chain.run_response_hooks(&mut event).await.map_err(|fault| fault::of_extension(&fault))?;
        if let StreamResponse::StatusUpdate(update) = &event {
            self.turn_task.show(update.status.state, update.status.timestamp);
        }
        self.pending.push(event);
        Ok(())
    }
}
