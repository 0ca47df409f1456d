//! Ends a turn with one append, which stores the last event and the last state of the task and removes the turn from its queue.

use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent};
use annex_conversation::{AppendError, Entry, Excess};
use annex_fairness::of_same_tenant;
use annex_protocol::{Message, Part, StreamResponse, TaskState};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{Ending, Progress, Settled, Stage, Turn, TurnResult};
use crate::counters::TurnEnd;
use crate::fault;

impl Ending {
    /// The state in which the agent has left its task.
    fn settled(&self) -> Settled {
        match self {
            Self::Returned(_, settled) => *settled,
            Self::Answered(_)
            | Self::Canceled
            | Self::Stopped
            | Self::TookTooLong
            | Self::Lost
            | Self::Vetoed(_)
            | Self::Broken(_) => None,
        }
    }
}

impl Turn {
    /// Ends the turn. Returns the extensions that were active until the end.
    ///
    /// # Errors
    /// When the last state cannot be stored.
    pub(super) async fn end(mut self, ending: Ending, mut events: mpsc::Receiver<AgentEvent>) -> TurnResult {
        let ending = match ending {
            Ending::Returned(result, None) => self.drain(result, &mut events).await,
            other => other,
        };
        if matches!(ending, Ending::Lost) || self.is_lost() {
            return Ok(self.leave());
        }
        if matches!(ending, Ending::Stopped) && self.is_handed_over().await {
            return Ok(self.leave());
        }
        self.tell_of(&ending).await;
        match ending {
            Ending::Answered(message) => self.end_with_answer(message).await,
            // Without a task that the client knows, the client gets the error itself.
            Ending::Returned(Err(AgentError::Refused(error)), _) if matches!(self.stage, Stage::Opening { .. }) => {
                self.end_with_refusal(error).await
            }
            other => self.end_with_task(other).await,
        }
    }

    /// Processes the events that the agent had sent before the agent returned.
    async fn drain(&mut self, result: Result<(), AgentError>, events: &mut mpsc::Receiver<AgentEvent>) -> Ending {
        match self.take(events.try_recv().ok(), events).await {
            Ok(Progress::GoesOn) => Ending::Returned(result, None),
            Ok(Progress::Ends(Ending::Returned(Ok(()), settled))) => Ending::Returned(result, settled),
            Ok(Progress::Ends(ending)) => ending,
            Err(error) => Ending::Broken(error),
        }
    }

    /// Ends the turn and stores the last state of the task. If the agent has not brought the task into a final or
    /// interrupted state, `ending` determines the state.
    async fn end_with_task(mut self, ending: Ending) -> TurnResult {
        if matches!(ending, Ending::Broken(_)) {
            // From now on only the host's own text goes out, and no held content.
            self.chain.end_output();
        }
        let settled = ending.settled();
        let conclusion = self.conclusion(ending);
        let state = conclusion.as_ref().map(|(state, _)| *state).or(settled);
        let mut text = conclusion.as_ref().and_then(|(_, text)| text.clone());
        let announced = match conclusion {
            Some((state, text)) => self.status(state, text.map(|text| self.message(text))).await.map(drop),
            None => Ok(()),
        };
        if let Some(shown) = &self.shown {
            // The session has the text that the client gets.
            text = match &announced {
                Ok(()) => text.map(|text| shown.text(text)),
                Err(error) => Some(error.to_string()),
            };
        }
        self.announce();
        let mut entries = self.closing(state.map(|state| (state, text)));
        entries.append(&mut self.pending);
        self.amend_session().await;
        let stored = match announced {
            Ok(()) => self.append_last(&entries).await,
            // The task must reach a final state even if an extension fails on the way.
            Err(error) => {
                entries.push(self.failure(error.to_string()));
                self.append_last(&entries).await
            }
        };
        let stored = match stored {
            // An entry cannot be stored. The end of the turn may be.
            Err(error) if !self.is_lost() => self.end_with_failure(error, &entries).await,
            other => other,
        };
        match stored {
            Ok(()) => self.conclude().await,
            Err(_) if self.is_lost() => Ok(self.leave()),
            Err(error) => {
                let error = fault::of_append(error);
                self.abandon(&error);
                Err(error)
            }
        }
    }

    /// Fails the task, because its last entries cannot be stored. If these entries are too large together, they are
    /// stored one by one up to the first failure.
    async fn end_with_failure(&mut self, mut error: AppendError, entries: &[Entry]) -> Result<(), AppendError> {
        if let AppendError::TooLarge(_) = error {
            for entry in entries.iter().filter(|entry| !matches!(entry, Entry::Update(update) if is_final(update))) {
                if let Err(of_entry) = self.append(std::slice::from_ref(entry)).await {
                    error = of_entry;
                    break;
                }
            }
        }
        let text = match error {
            // The task is too large and not the conversation, or the store failed and not the agent.
            error @ (AppendError::TooLarge(Excess::Task { .. }) | AppendError::Store(_)) => {
                fault::of_append(error).to_string()
            }
            error => text_for_client(AgentError::unstored(error)),
        };
        let mut last = self.closing(Some((TaskState::Failed, Some(text.clone()))));
        last.push(self.failure(text));
        self.append_last(&last).await
    }

    /// Ends the turn in this process: counts it and updates the record of its task. The turn has already left the
    /// queue.
    async fn conclude(mut self) -> TurnResult {
        self.stage = Stage::Ended;
        let tasks = &self.handler.process.tasks;
        let seen = self.record.numbered();
        let state = seen.0.state();
        self.count(state.into());
        self.record.end_turn(self.context.conversation.fence(), false);
        if self.context.cancel.is_cancelled() && !state.is_terminal() {
            // The turn was cancelled just when it had interrupted its task.
            if let Err(error) = tasks.append_alone(&self.record, seen, self.record.canceled()).await {
                fault::log(&error);
            }
        }
        tasks.leave_if_finished(&self.record);
        Ok(self.active())
    }

    /// The state that the task ends in, and the text of its status. `None` if the agent has already brought the task
    /// into that state.
    fn conclusion(&self, ending: Ending) -> Option<(TaskState, Option<String>)> {
        Some(match ending {
            // A turn that has lost its task must not change it.
            Ending::Returned(Ok(()) | Err(AgentError::Closed), Some(_)) | Ending::Lost | Ending::Answered(_) => {
                return None;
            }
            Ending::Returned(Ok(()) | Err(AgentError::Closed), None) => (TaskState::Completed, None),
            Ending::Returned(
                Err(error @ (AgentError::Failed { .. } | AgentError::Internal { .. } | AgentError::Broken { .. })),
                _,
            ) => (TaskState::Failed, Some(text_for_client(error))),
            // The client has the task already, because otherwise it has got the refusal above.
            Ending::Returned(Err(AgentError::Refused(error)), _) => (self.after_refusal(), Some(error.to_string())),
            Ending::Canceled => (TaskState::Canceled, None),
            Ending::Stopped => {
                (TaskState::Failed, Some("The server is shutting down; send the message again.".to_owned()))
            }
            Ending::TookTooLong => (TaskState::Failed, Some("The agent took too long.".to_owned())),
            Ending::Vetoed(reason) => (TaskState::Rejected, Some(reason)),
            Ending::Broken(error) => (TaskState::Failed, Some(error.to_string())),
        })
    }

    /// The update that fails the task.
    fn failure(&self, text: String) -> Entry {
        StreamResponse::StatusUpdate(self.status_update(TaskState::Failed, Some(self.message(text)))).into()
    }

    pub(super) fn message(&self, text: String) -> Message {
        let task_id = Some(self.context.task_id.clone());
        Message::agent(self.context.context_id.clone(), task_id, vec![Part::text(text)])
    }
}

/// The text for the client about a failure of the agent. The log has what clients must not see.
fn text_for_client(error: AgentError) -> String {
    match error {
        AgentError::Failed { message } => message,
        error @ AgentError::Broken { .. } => {
            let error_id = fault::log_for_client(&error);
            format!("{error} The server's log has the details under {error_id}.")
        }
        error => {
            let error_id = fault::log_for_client(&error);
            format!("The agent failed; the server's log has the details under {error_id}.")
        }
    }
}

fn is_final(update: &StreamResponse) -> bool {
    matches!(update, StreamResponse::StatusUpdate(update) if update.status.state.is_terminal())
}

/// Ends a turn that breaks off, because the agent panicked or the runtime shuts down. Otherwise its readers would wait for
/// ever.
impl Drop for Turn {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        if matches!(stage, Stage::Ended) {
            return;
        }
        let (tenant, context) = (self.tenant(), &self.context.context_id);
        tracing::error!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "the turn broke off");
        self.count(TurnEnd::Failed);
        let Ok(runtime) = Handle::try_current() else { return };
        let text = "The agent broke off.".to_owned();
        let mut entries = self.closing(Some((TaskState::Failed, Some(text.clone()))));
        let (conversation, record) = (self.context.conversation.clone(), Arc::clone(&self.record));
        let tasks = Arc::clone(&self.handler.process.tasks);
        let shown = self.shown.take();
        let is_unknown = matches!(stage, Stage::Opening { .. });
        if !is_unknown {
            entries.push(self.failure(text));
        }
        // Counted as a running turn, so that a shutdown waits for the write.
        let fails = async move {
            if let Some(shown) = shown {
                conversation.amend_staged(|event| shown.amended(event)).await;
            }
            let stored = match is_unknown {
                // The client has got no task, only an error.
                true => conversation.refuse(&entries).await.map(|_| tasks.let_go(record.id())),
                false => conversation
                    .end(&entries)
                    .await
                    .map(|appended| record.show(&entries, appended.number, record.snapshot().with(&entries))),
            };
            if let Err(error) = &stored {
                fault::log(error);
            }
            record.end_turn(conversation.fence(), stored.is_err());
            tasks.leave_if_finished(&record);
            tasks.tell_queue(record.key());
        };
        self.handler.process.running.spawn_on(of_same_tenant(fails), &runtime);
    }
}
