//! The states that a turn brings its task into, as the extensions let it.

use annex_protocol::{A2aError, ExtensionUri, Message, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent};
use annex_runtime::{Entry, Steering};
use annex_session::{Event, EventError, StateDelta};

use super::{Ending, Turn};
use crate::fault;
use crate::pins::Interrupted;

impl Turn {
    /// Does what the extensions said before the turn. Returns how it ends when the agent is not to run.
    pub(super) async fn enter(&mut self) -> Option<Ending> {
        match self.entry.take()? {
            Entry::Proceed => None,
            Entry::Vetoed(reason) => Some(Ending::Vetoed(reason)),
            Entry::Interrupted(interruption) => {
                let by = interruption.by.clone();
                let mut update = self.status_update(interruption.state, None);
                interruption.place(&mut update);
                match self.change(update, Some(by)).await {
                    Ok(()) => Some(Ending::Returned(Ok(()))),
                    Err(error) => Some(Ending::Broken(error)),
                }
            }
        }
    }

    /// Brings the task into a state, or where the extensions want it instead.
    pub(super) async fn status(&mut self, state: TaskState, message: Option<Message>) -> Result<(), A2aError> {
        let update = self.status_update(state, message);
        self.change(update, None).await
    }

    /// The same by a status of another agent's, which has metadata.
    pub(super) async fn relayed_status(&mut self, update: TaskStatusUpdateEvent) -> Result<(), A2aError> {
        let TaskStatusUpdateEvent { status: TaskStatus { state, message, .. }, metadata, .. } = update;
        let update = TaskStatusUpdateEvent { metadata, ..self.status_update(state, message) };
        self.change(update, None).await
    }

    /// `by` is the extension that wants the change.
    async fn change(
        &mut self,
        mut update: TaskStatusUpdateEvent,
        mut by: Option<ExtensionUri>,
    ) -> Result<(), A2aError> {
        let current = self.turn_task.state().unwrap_or(TaskState::Submitted);
        match self.chain.change(current, &mut update).await.map_err(|fault| fault::internal(&fault))? {
            Steering::Passed => {}
            Steering::Interrupted(other) => by = Some(other),
            Steering::Vetoed => by = None,
        }
        let state = update.status.state;
        if state.is_interrupted() {
            let interrupted = by.map(|by| Interrupted { by, requested: self.requested.clone() });
            // Before anybody sees that it waits, and answers.
            self.tasks.pins().hold(&self.owner, &self.context.task_id, self.chain.extensions(), interrupted);
        }
        self.respond(StreamResponse::StatusUpdate(update)).await?;
        self.state = Some(state);
        Ok(())
    }

    /// The agent's turn of the conversation ends with an event of the agent. If it has stored none, there is one here:
    /// without a word, or with the reason why there is no answer.
    ///
    /// What cannot be stored is logged; the next turn finds that this one was broken off.
    ///
    /// # Errors
    /// When the user's message cannot be stored either.
    pub(super) async fn close_session(
        &mut self,
        conclusion: Option<&(TaskState, Option<String>)>,
    ) -> Result<(), A2aError> {
        if !self.context.session.is_unanswered() {
            return Ok(());
        }
        let state = conclusion.map(|(state, _)| *state).or(self.state);
        let (author, invocation) = (self.context.session.key().app.clone(), self.context.task_id.clone());
        let event = match state.filter(|state| state.is_terminal() && *state != TaskState::Completed) {
            Some(state) => {
                let text = conclusion.and_then(|(_, text)| text.clone());
                let message = text.unwrap_or_else(|| "The turn ended without an answer.".to_owned());
                Event::failed(author, invocation, EventError { code: state.name().to_owned(), message })
            }
            None => Event::new(author, invocation, Vec::new(), StateDelta::new()),
        };
        let session = self.context.session.clone();
        match session.append(event).await {
            Err(error) if !session.is_stored() => Err(fault::of_session(&error)),
            Err(error) => {
                drop(fault::logged(&error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn status_update(&self, state: TaskState, message: Option<Message>) -> TaskStatusUpdateEvent {
        TaskStatusUpdateEvent {
            task_id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: self.task_status(state, message),
            ..TaskStatusUpdateEvent::default()
        }
    }
}
