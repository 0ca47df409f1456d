//! The parts of a turn that only a remote agent needs.

use std::time::Duration;

use annex_protocol::{A2aError, StreamResponse, TaskArtifactUpdateEvent, TaskState};

use super::{Ending, Progress, Turn};

/// The longest time for which a turn waits while the agent notifies its upstream that the task has ended here.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(5);

impl Turn {
    /// Passes on an event of the upstream, under the ids of this server.
    pub(super) async fn relay(&mut self, event: StreamResponse) -> Result<Progress, A2aError> {
        self.relays = true;
        match event {
            StreamResponse::Message(message) => self.answer(message).await,
            StreamResponse::StatusUpdate(update) => self.relayed_status(update).await.map(Progress::from),
            StreamResponse::ArtifactUpdate(update) => {
                let task_id = self.context.task_id.clone();
                let context_id = self.context.context_id.clone();
                let update = TaskArtifactUpdateEvent { task_id, context_id, ..update };
                self.respond(StreamResponse::ArtifactUpdate(update)).await.map(|()| Progress::GoesOn)
            }
            StreamResponse::Task(_) => {
                let reason = "the agent relayed a whole task".to_owned();
                Err(A2aError::InvalidAgentResponse { reason })
            }
        }
    }

    /// Answers the client with the task before the upstream's first event, to show that the upstream works on it.
    pub(super) async fn open_task(&mut self) -> Result<(), A2aError> {
        self.store().await?;
        if self.turn_task.state().is_none() {
            self.turn_task.show(TaskState::Submitted, self.record.snapshot().status_at());
        }
        self.announce();
        Ok(())
    }

    /// Notifies a remote agent that the turn has ended, unless the agent itself ended the turn or never got the message.
    pub(super) async fn tell_of(&mut self, ending: &Ending) {
        // A vetoed turn never reached the agent, and an agent that returned knows about its end.
        let is_its_own = matches!(ending, Ending::Returned(..) | Ending::Answered(_) | Ending::Vetoed(_));
        let Some(remote) = self.context.remote.as_ref().filter(|_| !is_its_own) else { return };
        let told = self.handler.agent.give_up(&self.context.task_id, remote);
        if tokio::time::timeout(GIVE_UP_PATIENCE, told).await.is_err() {
            let (tenant, context) = (self.tenant(), &self.context.context_id);
            tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "notifying the remote agent of the end of a task took too long");
        }
    }

    /// The state of the task after a refusal by the agent: a task that waited for its client goes on waiting.
    pub(super) fn after_refusal(&self) -> TaskState {
        match self.record.task_state() {
            state if state.is_interrupted() => state,
            _ if self.opened => TaskState::Rejected,
            _ => TaskState::Failed,
        }
    }
}
