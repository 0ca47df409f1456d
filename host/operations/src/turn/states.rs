//! Changes the state of a task during a turn. Extensions can replace the new state by another state.

use annex_conversation::{Entry, Note};
use annex_protocol::{
    A2aError, Artifact, ExtensionUri, Message, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};
use annex_runtime::ChangeOutcome;

use super::{Settled, Turn};
use crate::fault;

impl Turn {
    /// Brings the task into `state`, or into the state that the extensions choose instead.
    pub(super) async fn status(&mut self, state: TaskState, message: Option<Message>) -> Result<Settled, A2aError> {
        let update = self.status_update(state, message);
        self.change(update, None).await
    }

    /// Brings the task into the state of a status that the upstream has sent, like [`status`](Self::status). A status of the
    /// upstream may have metadata.
    pub(super) async fn relayed_status(&mut self, update: TaskStatusUpdateEvent) -> Result<Settled, A2aError> {
        let TaskStatusUpdateEvent { status: TaskStatus { state, message, .. }, metadata, .. } = update;
        let update = TaskStatusUpdateEvent { metadata, ..self.status_update(state, message) };
        self.change(update, None).await
    }

    /// Brings the task into the state of `update`, or into the state that the extensions choose instead. `by` is the
    /// extension that causes the change.
    pub(super) async fn change(
        &mut self,
        mut update: TaskStatusUpdateEvent,
        mut by: Option<ExtensionUri>,
    ) -> Result<Settled, A2aError> {
        let current = self.turn_task.state().unwrap_or(TaskState::Submitted);
        match self
            .chain
            .run_transition_hooks(current, &mut update)
            .await
            .map_err(|fault| fault::of_extension(&fault))?
        {
            ChangeOutcome::Passed => {}
            ChangeOutcome::Interrupted(other) => by = Some(other),
            // The veto replaces the interruption, so no extension may resume the task.
            ChangeOutcome::Vetoed => by = None,
        }
        let state = update.status.state;
        let settles = state.is_terminal() || state.is_interrupted();
        if settles
            && self.chain.revises_output()
            && let Err(error) = Box::pin(self.release_held()).await
        {
            // No extension can prevent these states. The reason is the only text that still goes out.
            if !matches!(state, TaskState::Canceled | TaskState::Rejected) {
                return Err(error);
            }
            update.status.message = Some(self.message(error.to_string()));
        }
        if state.is_interrupted() {
            let interrupted = by.map(|by| (by, self.requested.clone()));
            // Stored together with the interruption, which a reader can answer at once.
            let pins = self.handler.process.tasks.pins();
            let held = pins.hold(self.record.owner(), self.record.id(), self.chain.extensions(), interrupted);
            self.pending.extend(held.map(|pins| Entry::Note(Note::Pins(pins))));
        }
        self.respond(StreamResponse::StatusUpdate(update)).await?;
        Ok(Some(state).filter(|_| settles))
    }

    pub(super) fn status_update(&self, state: TaskState, message: Option<Message>) -> TaskStatusUpdateEvent {
        TaskStatusUpdateEvent {
            task_id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: self.task_status(state, message),
            ..TaskStatusUpdateEvent::default()
        }
    }

    /// A chunk of an artifact of this task.
    pub(super) fn artifact_update(
        &self,
        artifact: Artifact,
        append: bool,
        last_chunk: bool,
    ) -> TaskArtifactUpdateEvent {
        TaskArtifactUpdateEvent {
            task_id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            artifact,
            append,
            last_chunk,
            ..TaskArtifactUpdateEvent::default()
        }
    }

    fn task_status(&self, state: TaskState, message: Option<Message>) -> TaskStatus {
        let message = message.map(|mut message| {
            message.context_id = Some(self.context.context_id.clone());
            message.task_id = Some(self.context.task_id.clone());
            message
        });
        TaskStatus { state, message, timestamp: Some(Timestamp::now()) }
    }
}
