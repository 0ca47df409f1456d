//! The end of a turn: the session gets its last event, and the task its last state.

use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent};
use annex_fairness::of_same_tenant;
use annex_protocol::{A2aError, ExtensionUri, Message, Part, StreamResponse, TaskState};
use annex_session::{Event, EventError, StateDelta};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{Ending, Settled, Stage, Turn};
use crate::counters::TurnEnd;
use crate::fault;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

impl Ending {
    /// The state in which the agent has left its task.
    fn settled(&self) -> Settled {
        match self {
            Self::Returned(_, settled) => *settled,
            Self::Canceled | Self::Stopped | Self::TookTooLong | Self::Lost | Self::Vetoed(_) | Self::Broken(_) => None,
        }
    }
}

impl Turn {
    /// Ends the turn. Returns the extensions that were active until the end.
    ///
    /// # Errors
    /// When the last state cannot be stored.
    pub(super) async fn end(
        mut self,
        ending: Ending,
        mut events: mpsc::Receiver<AgentEvent>,
    ) -> Result<Vec<ExtensionUri>, A2aError> {
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
        let ending = match ending {
            Ending::Returned(Err(AgentError::Refused(error)), settled) if self.stage.task().is_none() => {
                // Without a task to hold the refusal, the client gets the error itself.
                self.context.session.drop_staged();
                self.refuse(error);
                Ending::Returned(Err(AgentError::Closed), settled)
            }
            other => other,
        };
        let concluded = if self.is_taskless() {
            self.close_session(None, ending.settled()).await
        } else {
            self.conclude(ending).await
        };
        if self.is_lost() {
            return Ok(self.leave());
        }
        let task = self.stage.take_task();
        self.count(task.as_ref().map_or(TurnEnd::Taskless, |task| task.task_state().into()));
        match task {
            Some(task) => close(&self.tasks, &task, concluded).await?,
            None => concluded?,
        }
        Ok(self.active())
    }

    /// Processes the events that the agent had sent before it returned.
    async fn drain(&mut self, result: Result<(), AgentError>, events: &mut mpsc::Receiver<AgentEvent>) -> Ending {
        match self.take(events.try_recv().ok(), events).await {
            Ok(settled) => Ending::Returned(result, settled),
            Err(error) => Ending::Broken(error),
        }
    }

    /// Brings the task into the state for the ending, unless the agent has done so.
    async fn conclude(&mut self, ending: Ending) -> Result<(), A2aError> {
        let settled = ending.settled();
        let conclusion = self.conclusion(ending);
        // The session is closed before the task: if the user's message cannot be stored, no reader must have seen a
        // task.
        if let Err(error) = self.close_session(conclusion.as_ref(), settled).await {
            self.roll_back(error);
            return Ok(());
        }
        let announced = match conclusion {
            Some((state, text)) => self.status(state, text.map(|text| self.message(text))).await.map(drop),
            None => Ok(()),
        };
        let concluded = match announced {
            Ok(()) => self.store().await,
            Err(error) => Err(error),
        };
        let Err(error) = concluded else { return Ok(()) };
        // No task could be created, so the client gets the error.
        if self.is_taskless() {
            return Err(error);
        }
        // The task must reach a final state even if an extension fails on the way.
        let failed = self.status_update(TaskState::Failed, Some(self.message(error.to_string())));
        self.pending.push(StreamResponse::StatusUpdate(failed));
        self.store().await
    }

    /// The last state, and its message. `None` if the agent has already brought the task there.
    fn conclusion(&self, ending: Ending) -> Option<(TaskState, Option<String>)> {
        Some(match ending {
            // A turn that has lost its task must not change it.
            Ending::Returned(Ok(()) | Err(AgentError::Closed), Some(_)) | Ending::Lost => return None,
            Ending::Returned(Ok(()) | Err(AgentError::Closed), None) => (TaskState::Completed, None),
            Ending::Returned(Err(AgentError::Failed { message }), _) => (TaskState::Failed, Some(message)),
            Ending::Returned(Err(error @ AgentError::Internal { .. }), _) => {
                let error_id = fault::log_for_client(&error);
                let text = format!("The agent failed; the server's log has the details under {error_id}.");
                (TaskState::Failed, Some(text))
            }
            Ending::Returned(Err(error @ AgentError::Broken { .. }), _) => {
                let error_id = fault::log_for_client(&error);
                (TaskState::Failed, Some(format!("{error} The server's log has the details under {error_id}.")))
            }
            // A task exists, because otherwise the client has got the refusal above.
            Ending::Returned(Err(AgentError::Refused(error)), _) => (self.still_waiting(), Some(error.to_string())),
            Ending::Canceled => (TaskState::Canceled, None),
            Ending::Stopped => {
                (TaskState::Failed, Some("The server is shutting down; send the message again.".to_owned()))
            }
            Ending::TookTooLong => (TaskState::Failed, Some("The agent took too long.".to_owned())),
            Ending::Vetoed(reason) => (TaskState::Rejected, Some(reason)),
            Ending::Broken(error) => (TaskState::Failed, Some(error.to_string())),
        })
    }

    /// Stores the agent's last event of the turn in the session. If the agent has stored none, an event without content
    /// is stored, or one with the reason why there is no answer.
    ///
    /// A failure to store the event is logged. The next turn then sees that this one was broken off.
    ///
    /// # Errors
    /// When the user's message cannot be stored either.
    async fn close_session(
        &mut self,
        conclusion: Option<&(TaskState, Option<String>)>,
        settled: Settled,
    ) -> Result<(), A2aError> {
        if !self.context.session.is_unanswered() {
            return Ok(());
        }
        let state = conclusion.map(|(state, _)| *state).or(settled);
        let author = self.context.session.key().app.clone();
        let invocation = self.context.task_id.clone();
        let event = match state.filter(|state| state.is_terminal() && *state != TaskState::Completed) {
            Some(state) => {
                let text = conclusion.and_then(|(_, text)| text.clone());
                let message = text.unwrap_or_else(|| "The turn ended without an answer.".to_owned());
                Event::failed(author, invocation, EventError { code: state.name().to_owned(), message })
            }
            None => Event::new(author, invocation, Vec::new(), StateDelta::new()),
        };
        let session = self.context.session.clone();
        match session.append_last(event).await {
            Err(error) if !session.is_stored() => Err(fault::of_session(&error)),
            Err(error) => {
                fault::log(&error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// True if there is no task and none will be created.
    fn is_taskless(&self) -> bool {
        matches!(self.stage, Stage::Taskless)
    }

    fn message(&self, text: String) -> Message {
        let task_id = Some(self.context.task_id.clone());
        Message::agent(self.context.context_id.clone(), task_id, vec![Part::text(text)])
    }
}

/// Ends the turn of a task in its last state, or abandons the task if that state could not be stored.
async fn close(tasks: &Tasks, record: &Arc<TaskRecord>, concluded: Result<(), A2aError>) -> Result<(), A2aError> {
    if record.is_lost() {
        record.leave_turn();
        return Ok(());
    }
    if let Err(error) = &concluded {
        tasks.abandon(record, error);
    }
    let ended = record.end_turn().await.map_err(fault::of_store);
    if let Err(error) = &ended {
        tasks.abandon(record, error);
    }
    tasks.leave_if_finished(record);
    concluded.and(ended)
}

/// A turn that breaks off, because the agent panicked or the runtime shuts down, must not leave readers waiting.
impl Drop for Turn {
    fn drop(&mut self) {
        let Some(record) = self.stage.take_task() else { return };
        let (tenant, context) = (self.tenant(), &self.context.context_id);
        tracing::error!(target: crate::LOG_TARGET, tenant, %context, task = %self.context.task_id, "the turn broke off");
        self.count(TurnEnd::Failed);
        let failed = self.status_update(TaskState::Failed, Some(self.message("The agent broke off.".to_owned())));
        let event = StreamResponse::StatusUpdate(failed);
        let tasks = Arc::clone(&self.tasks);
        let Ok(runtime) = Handle::try_current() else { return };
        // Counted as a running turn, so that a shutdown waits for the write.
        let fails = async move {
            let failed = record.append([event]).await.map_err(fault::of_store);
            // The error is ignored, because the cause is already logged.
            let _ = close(&tasks, &record, failed).await;
        };
        self.running.spawn_on(of_same_tenant(fails), &runtime);
    }
}
