//! The parts of a turn that only an agent that lives elsewhere needs.

use std::mem;
use std::time::Duration;

use annex_protocol::{A2aError, StreamResponse, TaskArtifactUpdateEvent, TaskState, Timestamp};

use super::{Ending, Settled, Stage, Turn};

/// The longest time that such an agent gets to tell its upstream that a task has ended here.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(5);

impl Turn {
    /// An event of another agent, under the ids of this server.
    pub(super) async fn relay(&mut self, event: StreamResponse) -> Result<Settled, A2aError> {
        match event {
            StreamResponse::Message(message) => self.answer(message).await.map(|()| None),
            StreamResponse::StatusUpdate(update) => self.relayed_status(update).await,
            StreamResponse::ArtifactUpdate(update) => {
                let task_id = self.context.task_id.clone();
                let context_id = self.context.context_id.clone();
                let update = TaskArtifactUpdateEvent { task_id, context_id, ..update };
                self.respond(StreamResponse::ArtifactUpdate(update)).await.map(|()| None)
            }
            StreamResponse::Task(_) => {
                let reason = "the agent relayed a whole task".to_owned();
                Err(A2aError::InvalidAgentResponse { reason })
            }
        }
    }

    /// Tells the client of its task, of which there is nothing to tell yet but that an agent has it.
    pub(super) async fn open_task(&mut self) -> Result<(), A2aError> {
        self.store().await?;
        match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Joined { task, client } => {
                self.announce(client, &task, task.subscribe());
                self.stage = Stage::Working { task };
                Ok(())
            }
            // Nobody must hear of a task before the user's message is stored.
            opening @ Stage::Opening { .. } if self.context.session.is_stored() => {
                self.stage = opening;
                self.turn_task.show(TaskState::Submitted, Some(Timestamp::now()));
                self.create(Vec::new()).await
            }
            other => {
                self.stage = other;
                Ok(())
            }
        }
    }

    /// Tells an agent that lives elsewhere of an end that is not its own.
    pub(super) async fn tell_of(&mut self, ending: &Ending) {
        // A vetoed turn never reached the agent, and one that returned knows of its end.
        let is_its_own = matches!(ending, Ending::Returned(..) | Ending::Vetoed(_));
        let Some(remote) = self.context.remote.as_ref().filter(|_| !is_its_own) else { return };
        let told = self.agent.give_up(&self.context.task_id, remote);
        if tokio::time::timeout(GIVE_UP_PATIENCE, told).await.is_err() {
            let (tenant, context) = (self.tenant(), &self.context.context_id);
            tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "the agent did not hear in time that a task has ended");
        }
    }

    /// The state of a task that goes on waiting, because the agent did not take the message.
    pub(super) fn still_waiting(&self) -> TaskState {
        let state = self.stage.task().map(|task| task.task_state());
        state.filter(|state| state.is_interrupted()).unwrap_or(TaskState::Failed)
    }
}
