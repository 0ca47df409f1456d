//! How a turn begins: the extensions say whether the agent is to run, the session gets the user's message, and the message
//! joins its task.

use std::mem;
use std::sync::Arc;

use annex_protocol::A2aError;
use annex_runtime::BeginOutcome;

use super::stage::{Client, Stage, UserEvent};
use super::{Ending, Turn};
use crate::deduplication::FirstDelivery;
use crate::fault;
use crate::tasks::record::{TaskRecord, finished};

impl Turn {
    /// Asks the extensions whether the agent is to run, and does what they say. Returns how the turn ends when it is not.
    ///
    /// # Errors
    /// Why the message is refused. Nothing of it is left then, unless its task has ended meanwhile: it stays in the session.
    pub(super) async fn begin(&mut self) -> Result<Option<Ending>, A2aError> {
        let Stage::Accepted { user_event, task, .. } = &mut self.stage else { return Ok(None) };
        let user_event = user_event.take();
        let is_resumed = user_event.is_none();
        let waits_in = task.as_ref().map(|task| task.task_state());
        let (task_id, context_id) = (&self.context.task_id, &self.context.context_id);
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
        self.open_or_join(is_resumed).await?;
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

    async fn open_or_join(&mut self, is_resumed: bool) -> Result<(), A2aError> {
        match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Accepted { task: Some(task), client, delivery, .. } => {
                self.join(task, client, delivery, is_resumed).await
            }
            Stage::Accepted { task: None, client, delivery, .. } => {
                self.stage = Stage::Opening { client, delivery };
                Ok(())
            }
            other => {
                self.stage = other;
                Ok(())
            }
        }
    }

    /// The message joins the task that it continues.
    async fn join(
        &mut self,
        task: Arc<TaskRecord>,
        client: Client,
        delivery: Option<FirstDelivery>,
        is_resumed: bool,
    ) -> Result<(), A2aError> {
        self.tasks.pins().go_on(&self.context.task_id);
        let message = (!is_resumed).then(|| (*self.context.message).clone());
        let resumed = task.resume(message, self.context.cancel.clone()).await.map_err(fault::of_store);
        match resumed {
            Ok(true) => {
                if let Some(mut delivery) = delivery {
                    delivery.settle();
                }
                self.stage = Stage::Joined { task, client };
                Ok(())
            }
            Ok(false) => {
                self.stage = Stage::Opening { client, delivery };
                Err(finished(&task))
            }
            Err(error) => {
                self.stage = Stage::Opening { client, delivery };
                Err(error)
            }
        }
    }
}
