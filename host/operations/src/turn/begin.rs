//! The beginning of a turn: the extensions decide whether the agent runs, the session gets the user's message, and the
//! message joins its task.

use std::mem;

use annex_protocol::A2aError;
use annex_runtime::BeginOutcome;

use super::stage::{Stage, UserEvent};
use super::{Ending, Turn};
use crate::fault;
use crate::tasks::record::{NextTurn, finished};

impl Turn {
    /// Runs the beginning hooks of the extensions and applies their decision. Returns the turn's ending if the agent
    /// must not run.
    ///
    /// # Errors
    /// The reason why the message is refused. A refused message leaves nothing behind, with one exception: if the task
    /// has ended at the same time, the message stays in the session.
    pub(super) async fn begin(&mut self) -> Result<Option<Ending>, A2aError> {
        let Stage::Accepted { user_event, task, .. } = &mut self.stage else { return Ok(None) };
        let user_event = user_event.take();
        // A resumption by an extension brings no message.
        let is_resumed = user_event.is_none();
        let waits_in = task.as_ref().map(|task| task.task_state());
        let task_id = &self.context.task_id;
        let context_id = &self.context.context_id;
        let outcome = self.chain.run_beginning_hooks(task_id, context_id, waits_in, is_resumed).await;
        let outcome = outcome.map_err(|fault| fault::of_hook(fault.into()))?;
        // A vetoed message is not stored.
        if let Some(user_event) = user_event
            && !matches!(outcome, BeginOutcome::Vetoed(_))
        {
            let UserEvent { event, following } = *user_event;
            let appended = self.context.session.append_user(event, following).await;
            appended.map_err(|error| fault::of_session(&error))?;
        }
        self.join(is_resumed).await?;
        Ok(match outcome {
            BeginOutcome::Proceed => None,
            BeginOutcome::Vetoed(reason) => Some(Ending::Vetoed(reason)),
            BeginOutcome::Interrupted(interruption) => {
                let by = interruption.by.clone();
                let mut update = self.status_update(interruption.state, None);
                interruption.place(&mut update);
                Some(match self.change(update, Some(by)).await {
                    Ok(settled) => Ending::Returned(Ok(()), settled),
                    Err(error) => Ending::Broken(error),
                })
            }
        })
    }

    /// Adds the message to the task that it continues, if any. From here on the message counts as accepted.
    async fn join(&mut self, is_resumed: bool) -> Result<(), A2aError> {
        if let Some(task) = self.stage.task().cloned() {
            let message = (!is_resumed).then(|| (*self.context.message).clone());
            let (cancel, runner) = (self.context.cancel.clone(), self.replica.clone());
            let turn = NextTurn { cancel, runner, stored: self.stored.clone() };
            if !task.resume(message, turn).await.map_err(fault::of_store)? {
                return Err(finished(&task));
            }
            // The interruption ends here, so that no extension can resume the task for it again.
            if let Err(error) = self.tasks.go_on(&self.context.task_id).await {
                // The task continues anyway, and a resumption by an extension has to wait for this turn.
                fault::log(&error);
            }
        }
        self.stage = match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Accepted { task: Some(task), client, delivery, .. } => {
                // The task has the message now, so repetitions of the message are recognised however the turn ends.
                if let Some(delivery) = delivery {
                    delivery.settle();
                }
                Stage::Joined { task, client }
            }
            Stage::Accepted { task: None, client, delivery, .. } => Stage::Opening { client, delivery },
            later => later,
        };
        Ok(())
    }
}
