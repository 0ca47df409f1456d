//! Runs the output hooks and the response hooks on the events of the agent, and stores these events.

use annex_agent::AgentEvent;
use annex_conversation::Entry;
use annex_protocol::{A2aError, ArtifactId, StreamResponse, TaskState};
use tokio::sync::mpsc;

use super::{EVENTS_IN_FLIGHT, Ending, Progress, Settled, Turn};
use crate::fault;

impl From<Settled> for Progress {
    fn from(settled: Settled) -> Self {
        match settled {
            Some(_) => Self::Ends(Ending::Returned(Ok(()), settled)),
            None => Self::GoesOn,
        }
    }
}

impl Turn {
    /// Stores the event and the events that are queued behind it.
    pub(super) async fn deliver(
        &mut self,
        event: AgentEvent,
        waiting: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<Progress, A2aError> {
        let taken = self.take(Some(event), waiting).await;
        if self.handler.receipts.is_some() && matches!(&taken, Ok(Progress::Ends(Ending::Returned(_, Some(_))))) {
            // The receipt covers the whole answer and is in its last status, which is stored with the end of the turn.
            return taken;
        }
        // Events from before a fault are stored anyway.
        let stored = self.store().await;
        let progress = taken?;
        stored?;
        Ok(progress)
    }

    /// Processes `next` and the queued events, up to the first event that settles the task.
    pub(super) async fn take(
        &mut self,
        mut next: Option<AgentEvent>,
        waiting: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<Progress, A2aError> {
        while let Some(event) = next {
            let progress = self.take_one(event).await?;
            if let Progress::Ends(_) = progress {
                return Ok(progress);
            }
            let is_full = self.pending.len() >= EVENTS_IN_FLIGHT;
            next = if is_full { None } else { waiting.try_recv().ok() };
        }
        Ok(Progress::GoesOn)
    }

    async fn take_one(&mut self, mut event: AgentEvent) -> Result<Progress, A2aError> {
        self.handler.agent.before_event(&self.context.conversation, &mut event);
        match event {
            AgentEvent::Message(message) => self.answer(message).await,
            AgentEvent::Status { state, message } => self.status(state, message).await.map(Progress::from),
            AgentEvent::Relayed(event) => self.relay(*event).await,
            AgentEvent::Begun => self.open_task().await.map(|()| Progress::GoesOn),
            AgentEvent::Waits { pause, parts, note } => {
                Box::pin(self.pause(*pause, parts, *note)).await.map(Progress::from)
            }
            AgentEvent::Question(question) => Box::pin(self.answer_question(*question)).await,
            AgentEvent::Artifact { artifact, append, last_chunk } => {
                let update = self.artifact_update(artifact, append, last_chunk);
                self.respond(StreamResponse::ArtifactUpdate(update)).await.map(|()| Progress::GoesOn)
            }
        }
    }

    fn has_artifact(&self, id: &ArtifactId) -> bool {
        let is_pending = |entry: &Entry| match entry {
            Entry::Update(update) => {
                matches!(update.as_ref(), StreamResponse::ArtifactUpdate(update) if update.artifact.artifact_id == *id)
            }
            Entry::Message(_) | Entry::Event(_) | Entry::Note(_) => false,
        };
        self.pending.iter().any(is_pending) || self.record.snapshot().has_artifact(id)
    }

    /// Runs the output hooks and the response hooks on the event, which is then ready to be stored.
    pub(super) async fn respond(&mut self, mut event: StreamResponse) -> Result<(), A2aError> {
        if self.turn_task.state().is_none() {
            self.turn_task.show(TaskState::Submitted, self.record.snapshot().status_at());
        }
        if let StreamResponse::ArtifactUpdate(update) = &mut event {
            // Official clients fail on a chunk that appends to an unknown artifact, even on a relayed one.
            let id = &update.artifact.artifact_id;
            update.append = update.append && (self.chain.holds_back(id) || self.has_artifact(id));
        }
        if self.chain.revises_output() {
            // Boxed, so that the future of a turn without the hook stays small.
            let Some(revised) = Box::pin(self.revised(event)).await? else { return Ok(()) };
            event = revised;
        }
        self.annotated(event).await
    }

    /// Runs the response hooks on the event, which is then ready to be stored.
    pub(super) async fn annotated(&mut self, mut event: StreamResponse) -> Result<(), A2aError> {
        self.chain.run_response_hooks(&mut event).await.map_err(|fault| fault::of_extension(&fault))?;
        if let StreamResponse::StatusUpdate(update) = &mut event {
            update.metadata.extend(self.chain.take_task_metadata());
            self.turn_task.show(update.status.state, update.status.timestamp);
        }
        self.pending.push(event.into());
        Ok(())
    }
}
