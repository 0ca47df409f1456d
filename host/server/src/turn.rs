//! One turn of an agent, from the accepted message to the end of its events.
//!
//! A turn runs in a task of its own: neither a client that goes away nor a slow reader holds it up. What the agent
//! sends passes the extensions' response hooks, is stored, and only then reaches the readers.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{
    A2aError, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, Timestamp,
};
use annex_runtime::Chain;
use annex_tasks::Owner;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::task_log::LogReader;
use crate::tasks::{TaskRecord, TaskStore};

/// Agent events that wait for the hooks and the store.
const EVENTS_IN_FLIGHT: usize = 16;

/// How a turn announced itself: the agent's first event decides.
pub(crate) enum Opening {
    /// It answered with a message; there is no task.
    Message(Box<Message>),
    /// It works on a task. The snapshot and the reader fit together without gap.
    Task { record: Arc<TaskRecord>, snapshot: Box<Task>, reader: Option<LogReader> },
}

/// A turn that is ready to run.
pub(crate) struct Turn {
    /// Whose task it is.
    pub(crate) owner: Owner,
    pub(crate) agent: Arc<dyn AgentExecutor>,
    pub(crate) tasks: Arc<TaskStore>,
    pub(crate) chain: Chain,
    pub(crate) context: TurnContext,
    /// The task that the message continues.
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// The last state that this turn brought the task into; none yet when it continues a paused one.
    pub(crate) state: Option<TaskState>,
    /// Whoever sent the message waits here; taken by the first event.
    pub(crate) opened: Option<oneshot::Sender<Result<Opening, A2aError>>>,
    /// The longest that the turn may take.
    pub(crate) patience: Duration,
    /// Fires when the server cannot wait for the turn any longer.
    pub(crate) stop: CancellationToken,
}

/// Why the events of a turn ended.
enum Ending {
    Returned(Result<(), AgentError>),
    Canceled,
    Stopped,
    TookTooLong,
    Broken(A2aError),
}

impl Turn {
    /// Runs the agent to its end, or until it is cancelled, and leaves the task in a final or interrupted state.
    pub(crate) async fn run(mut self) {
        let (sender, mut events) = EventSender::bounded(EVENTS_IN_FLIGHT);
        let agent = Arc::clone(&self.agent);
        let mut execution = agent.execute(self.context.clone(), sender);
        let (cancel, stop) = (self.context.cancel.clone(), self.stop.clone());
        let mut deadline = std::pin::pin!(tokio::time::sleep(self.patience));
        let ending = loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => break Ending::Canceled,
                () = stop.cancelled() => break Ending::Stopped,
                () = &mut deadline => break Ending::TookTooLong,
                Some(event) = events.recv() => match self.deliver(event).await {
                    // What an agent does after a final state is nobody's business.
                    Ok(()) if self.is_settled() => break Ending::Returned(Ok(())),
                    Ok(()) => {}
                    Err(error) => break Ending::Broken(error),
                },
                result = &mut execution => break Ending::Returned(result),
            }
        };
        // Whatever the agent is still doing stops here.
        drop(execution);
        self.end(ending, events).await;
    }

    /// Whether this turn has brought the task where only another message, or nothing, takes it on.
    fn is_settled(&self) -> bool {
        self.state.is_some_and(|state| state.is_terminal() || state.is_interrupted())
    }

    async fn deliver(&mut self, mut event: AgentEvent) -> Result<(), A2aError> {
        self.agent.before_event(&self.context.session, &mut event);
        match event {
            AgentEvent::Message(message) => self.answer(message).await,
            AgentEvent::Status { state, message } => self.status(state, message).await,
            AgentEvent::Artifact { artifact, append, last_chunk } => {
                let record = self.task();
                let update = TaskArtifactUpdateEvent {
                    task_id: self.context.task_id.clone(),
                    context_id: self.context.context_id.clone(),
                    artifact,
                    append,
                    last_chunk,
                    ..TaskArtifactUpdateEvent::default()
                };
                self.publish(&record, StreamResponse::ArtifactUpdate(update)).await
            }
        }
    }

    /// The agent answers with a message instead of a task; it can do so only first.
    async fn answer(&mut self, mut message: Message) -> Result<(), A2aError> {
        let Some(opened) = self.opened.take() else {
            let reason = "the agent sent a message after its task had begun".to_owned();
            return Err(A2aError::InvalidAgentResponse { reason });
        };
        message.context_id = Some(self.context.context_id.clone());
        let mut event = StreamResponse::Message(message);
        let responded = self.chain.respond(&mut event).await;
        let answer = match (responded, event) {
            (Ok(()), StreamResponse::Message(message)) => Ok(Opening::Message(Box::new(message))),
            (Ok(()), _) => return Ok(()),
            (Err(fault), _) => Err(fault::internal(&fault)),
        };
        // A client that has gone away needs no answer.
        let _ = opened.send(answer);
        Ok(())
    }

    async fn status(&mut self, state: TaskState, message: Option<Message>) -> Result<(), A2aError> {
        let record = self.task();
        let event = StreamResponse::StatusUpdate(record.status_event(self.task_status(state, message)));
        self.publish(&record, event).await?;
        self.state = Some(state);
        Ok(())
    }

    fn task_status(&self, state: TaskState, message: Option<Message>) -> TaskStatus {
        let message = message.map(|mut message| {
            message.context_id = Some(self.context.context_id.clone());
            message.task_id = Some(self.context.task_id.clone());
            message
        });
        TaskStatus { state, message, timestamp: Some(Timestamp::now()) }
    }

    async fn publish(&mut self, record: &TaskRecord, mut event: StreamResponse) -> Result<(), A2aError> {
        self.chain.respond(&mut event).await.map_err(|fault| fault::internal(&fault))?;
        record.append(event);
        Ok(())
    }

    /// The turn's task; the first call creates it and tells whoever waits.
    fn task(&mut self) -> Arc<TaskRecord> {
        let record = match self.record.take() {
            Some(record) => record,
            None => self.create(),
        };
        self.record = Some(Arc::clone(&record));
        if let Some(opened) = self.opened.take() {
            let (snapshot, reader) = record.subscribe();
            let opening = Opening::Task { record: Arc::clone(&record), snapshot: Box::new(snapshot), reader };
            // A client that has gone away does not stop the task.
            let _ = opened.send(Ok(opening));
        }
        record
    }

    fn create(&self) -> Arc<TaskRecord> {
        let task = Task {
            id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(Timestamp::now()) },
            history: vec![(*self.context.message).clone()],
            ..Task::default()
        };
        let record = Arc::new(TaskRecord::new(self.owner.clone(), task, self.context.cancel.clone()));
        self.tasks.insert(&record);
        record
    }

    async fn end(mut self, ending: Ending, mut events: mpsc::Receiver<AgentEvent>) {
        let ending = match ending {
            Ending::Returned(result) => self.drain(result, &mut events).await,
            other => other,
        };
        let answered_with_message = self.record.is_none() && self.opened.is_none();
        if !answered_with_message {
            self.conclude(ending).await;
        }
        if let Some(record) = self.record.take() {
            self.close(&record);
        }
    }

    fn close(&self, record: &TaskRecord) {
        record.end_turn();
        if record.is_finished() {
            self.tasks.finish(record);
        }
    }

    /// Delivers what the agent had sent before it returned.
    async fn drain(&mut self, result: Result<(), AgentError>, events: &mut mpsc::Receiver<AgentEvent>) -> Ending {
        while let Ok(event) = events.try_recv() {
            if let Err(error) = self.deliver(event).await {
                return Ending::Broken(error);
            }
        }
        Ending::Returned(result)
    }

    /// Brings the task into the state that the ending calls for, unless the agent has done so itself.
    async fn conclude(&mut self, ending: Ending) {
        let (state, text) = match ending {
            Ending::Returned(Ok(()) | Err(AgentError::Closed)) if self.is_settled() => return,
            Ending::Returned(Ok(()) | Err(AgentError::Closed)) => (TaskState::Completed, None),
            Ending::Returned(Err(AgentError::Failed { message })) => (TaskState::Failed, Some(message)),
            Ending::Returned(Err(error @ AgentError::Internal { .. })) => {
                let error_id = fault::logged(&error);
                (
                    TaskState::Failed,
                    Some(format!("The agent failed; the server's log has the details under {error_id}.")),
                )
            }
            Ending::Canceled => (TaskState::Canceled, None),
            Ending::Stopped => {
                (TaskState::Failed, Some("The server is shutting down; send the message again.".to_owned()))
            }
            Ending::TookTooLong => (TaskState::Failed, Some("The agent took too long.".to_owned())),
            Ending::Broken(error) => (TaskState::Failed, Some(error.to_string())),
        };
        let message = text.map(|text| self.message(text));
        if let Err(error) = self.status(state, message).await {
            // The final state must be reached even when an extension fails on the way to it.
            let message = self.message(error.to_string());
            let record = self.task();
            let status = self.task_status(TaskState::Failed, Some(message));
            record.append(StreamResponse::StatusUpdate(record.status_event(status)));
        }
    }

    fn message(&self, text: String) -> Message {
        let task_id = Some(self.context.task_id.clone());
        Message::agent(self.context.context_id.clone(), task_id, vec![Part::text(text)])
    }
}

/// A turn that breaks off, because the agent panicked or the runtime goes away, must not leave readers waiting.
impl Drop for Turn {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else { return };
        tracing::error!(task = %self.context.task_id, "the turn broke off");
        let status = self.task_status(TaskState::Failed, Some(self.message("The agent broke off.".to_owned())));
        record.append(StreamResponse::StatusUpdate(record.status_event(status)));
        self.close(&record);
    }
}
