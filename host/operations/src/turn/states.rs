//! The states that a turn brings its task into, as the extensions let it.

use annex_protocol::{
    A2aError, ExtensionUri, Message, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use annex_runtime::ChangeOutcome;

use super::{Settled, Turn};
use crate::fault;

impl Turn {
    /// Brings the task into a state, or where the extensions want it instead.
    pub(super) async fn status(&mut self, state: TaskState, message: Option<Message>) -> Result<Settled, A2aError> {
        let update = self.status_update(state, message);
        self.change(update, None).await
    }

    /// The same by a status of another agent's, which has metadata.
    pub(super) async fn relayed_status(&mut self, update: TaskStatusUpdateEvent) -> Result<Settled, A2aError> {
        let TaskStatusUpdateEvent { status: TaskStatus { state, message, .. }, metadata, .. } = update;
        let update = TaskStatusUpdateEvent { metadata, ..self.status_update(state, message) };
        self.change(update, None).await
    }

    /// `by` is the extension that wants the change.
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
            // A vetoed task does not wait, so there is nobody who may take it up again.
            ChangeOutcome::Vetoed => by = None,
        }
        let state = update.status.state;
        if state.is_interrupted() {
            let interrupted = by.map(|by| (by, self.requested.clone()));
            // Before anybody sees that it waits, and answers.
            let held = self.tasks.pins().hold(&self.owner, &self.context.task_id, self.chain.extensions(), interrupted);
            self.tasks.keep_pins(&self.context.task_id, held).await.map_err(fault::of_store)?;
        }
        self.respond(StreamResponse::StatusUpdate(update)).await?;
        Ok(Some(state).filter(|state| state.is_terminal() || state.is_interrupted()))
    }

    pub(super) fn status_update(&self, state: TaskState, message: Option<Message>) -> TaskStatusUpdateEvent {
        TaskStatusUpdateEvent {
            task_id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: self.task_status(state, message),
            ..TaskStatusUpdateEvent::default()
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
