//! One turn of an agent, from the accepted message to the end of its events.
//!
//! A turn that waits goes on in a task of its own: neither a client that goes away nor a slow reader holds it up. What the
//! agent sends passes the extensions' response hooks, is stored, and only then reaches the readers. Events that the agent
//! sends without waiting in between are stored together, the task itself with the first of them. The user's message, if the
//! session has only taken it in, is stored before all of them, and before the agent waits.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{
    A2aError, ExtensionUri, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    Timestamp,
};
use annex_runtime::{Chain, Entry};
use annex_tasks::{Owner, StoreError, TaskEvent, TaskSnapshot};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::claim::Claim;
use crate::counters::{Counters, TurnEnd};
use crate::fault;
use crate::places::Place;
use crate::readers::TurnTask;
use crate::task_log::LogReader;
use crate::task_record::{Subscription, TaskRecord};
use crate::tasks::Tasks;

mod remote;
mod running;
mod states;

pub(crate) use running::Running;

/// Agent events that wait for the hooks and the store; also the most that are stored together.
const EVENTS_IN_FLIGHT: usize = 16;

/// How a turn announced itself: the agent's first event decides.
pub(crate) enum Opening {
    /// It answered with a message; there is no task.
    Message(Box<Message>),
    /// It works on a task. The snapshot and the reader fit together without gap.
    Task { record: Arc<TaskRecord>, snapshot: TaskSnapshot, reader: Option<LogReader> },
}

/// An opening, and the extensions that were active up to it.
pub(crate) struct Opened {
    pub(crate) opening: Opening,
    pub(crate) active: Vec<ExtensionUri>,
}

/// A turn that is ready to run.
pub(crate) struct Turn {
    pub(crate) agent: Arc<dyn AgentExecutor>,
    pub(crate) tasks: Arc<Tasks>,
    /// Whose task it is.
    pub(crate) owner: Owner,
    /// The message's claim, until it is settled that the message is taken.
    pub(crate) claim: Option<Claim>,
    /// Kept until the turn is over.
    pub(crate) _place: Place,
    pub(crate) chain: Chain,
    /// Whether the agent is to run; taken when the turn begins.
    pub(crate) entry: Option<Entry>,
    /// The extensions that the client asked for.
    pub(crate) requested: Vec<ExtensionUri>,
    /// Whether an extension took the task up, rather than a message.
    pub(crate) resumed: bool,
    pub(crate) context: TurnContext,
    /// The task that the message continues.
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// What the extensions see of the task.
    pub(crate) turn_task: TurnTask,
    /// The last state that this turn brought the task into; none yet when it continues a paused one.
    pub(crate) state: Option<TaskState>,
    /// Events that have passed the hooks and are not stored.
    pub(crate) pending: Vec<StreamResponse>,
    /// Whoever sent the message waits here; taken once the first events are stored.
    pub(crate) opened: Option<oneshot::Sender<Result<Opened, A2aError>>>,
    /// The longest that the turn may take.
    pub(crate) patience: Duration,
    /// Fires when the server cannot wait for the turn any longer.
    pub(crate) stop: CancellationToken,
    /// Where the turn itself is counted.
    pub(crate) running: TaskTracker,
    /// Where its end is counted.
    pub(crate) counters: Arc<Counters>,
}

/// Why the events of a turn ended.
enum Ending {
    Returned(Result<(), AgentError>),
    Canceled,
    Stopped,
    TookTooLong,
    /// An extension does not let the agent run.
    Vetoed(String),
    Broken(A2aError),
}

impl Turn {
    /// Runs the agent to its end, or until it is cancelled, and leaves the task in a final or interrupted state. Returns
    /// the extensions that were active to the end.
    ///
    /// # Errors
    /// When that state cannot be stored.
    pub(crate) async fn run(mut self) -> Result<Vec<ExtensionUri>, A2aError> {
        if let Err(error) = self.begin().await {
            self.record = None;
            self.refuse(error);
            return Ok(Vec::new());
        }
        let (sender, mut events) = EventSender::bounded(EVENTS_IN_FLIGHT);
        if let Some(ending) = self.enter().await {
            return self.end(ending, events).await;
        }
        let agent = Arc::clone(&self.agent);
        let mut execution = agent.execute(self.context.clone(), sender);
        let is_stopped = self.context.cancel.is_cancelled() || self.stop.is_cancelled();
        let first = match is_stopped {
            true => Poll::Pending,
            false => poll_fn(|context| Poll::Ready(execution.as_mut().poll(context))).await,
        };
        let ending = match first {
            // A turn that never waits needs no clock.
            Poll::Ready(result) => Ending::Returned(result),
            Poll::Pending => match self.follow(&mut execution, &mut events).await {
                Ok(ending) => ending,
                Err(error) => {
                    self.unsay(error);
                    return Ok(Vec::new());
                }
            },
        };
        // Whatever the agent is still doing stops here.
        drop(execution);
        self.end(ending, events).await
    }

    /// Stores what an agent that waits has sent, and what it sends until the turn ends, one way or another.
    ///
    /// # Errors
    /// When the user's message cannot be stored.
    async fn follow(
        &mut self,
        execution: &mut (impl Future<Output = Result<(), AgentError>> + Unpin),
        events: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<Ending, A2aError> {
        let (cancel, stop) = (self.context.cancel.clone(), self.stop.clone());
        let mut deadline = pin!(tokio::time::sleep(self.patience));
        let session = self.context.session.clone();
        if !session.is_stored() {
            // The agent goes on only if it is storing an event itself, with which the message is stored.
            let quiet = tokio::select! {
                biased;
                quiet = session.quiet() => quiet,
                () = cancel.cancelled() => return Ok(Ending::Canceled),
                () = stop.cancelled() => return Ok(Ending::Stopped),
                () = &mut deadline => return Ok(Ending::TookTooLong),
                result = &mut *execution => return Ok(Ending::Returned(result)),
            };
            quiet.store().await.map_err(|error| fault::of_session(&error))?;
        }
        let mut sent = events.try_recv().ok();
        loop {
            let event = match sent.take() {
                Some(event) => event,
                None => tokio::select! {
                    biased;
                    () = cancel.cancelled() => return Ok(Ending::Canceled),
                    () = stop.cancelled() => return Ok(Ending::Stopped),
                    () = &mut deadline => return Ok(Ending::TookTooLong),
                    // Before its events are read, so that all that it sends without waiting is there.
                    result = &mut *execution => return Ok(Ending::Returned(result)),
                    Some(event) = events.recv() => event,
                },
            };
            match self.deliver(event, events).await {
                // What an agent does after a final state is nobody's business.
                Ok(()) if self.is_settled() || self.was_finished() => return Ok(Ending::Returned(Ok(()))),
                Ok(()) => {}
                Err(error) => return Ok(Ending::Broken(error)),
            }
        }
    }

    /// The user's message could not be stored: it never was said, and there is no task.
    fn unsay(&mut self, error: A2aError) {
        self.context.session.discard();
        self.pending.clear();
        self.tasks.pins().release(&self.context.task_id);
        self.refuse(error);
    }

    /// The message joins the task that it continues.
    async fn begin(&mut self) -> Result<(), A2aError> {
        let Some(record) = &self.record else { return Ok(()) };
        self.tasks.pins().go_on(&self.context.task_id);
        let message = (!self.resumed).then(|| (*self.context.message).clone());
        let resumed = record.resume(message, self.context.cancel.clone()).await;
        if !resumed.map_err(fault::of_store)? {
            return Err(finished(record));
        }
        self.settle_claim();
        Ok(())
    }

    /// Tells whoever waits that there will be no task.
    fn refuse(&mut self, error: A2aError) {
        if let Some(opened) = self.opened.take() {
            // A client that has gone away needs no answer.
            let _ = opened.send(Err(error));
        }
    }

    fn settle_claim(&mut self) {
        if let Some(mut claim) = self.claim.take() {
            claim.settle();
        }
    }

    /// Whether somebody else has finished the task.
    fn was_finished(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_finished())
    }

    /// Whether this turn has brought the task where only another message, or nothing, takes it on.
    fn is_settled(&self) -> bool {
        self.state.is_some_and(|state| state.is_terminal() || state.is_interrupted())
    }

    /// Stores the event and what waits behind it.
    async fn deliver(&mut self, event: AgentEvent, waiting: &mut mpsc::Receiver<AgentEvent>) -> Result<(), A2aError> {
        let taken = self.take(Some(event), waiting).await;
        // What came before a fault is stored all the same.
        let stored = self.store().await;
        taken.and(stored)
    }

    /// Takes `next` and the events that wait behind it, up to one that settles the task.
    async fn take(
        &mut self,
        mut next: Option<AgentEvent>,
        waiting: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<(), A2aError> {
        while let Some(event) = next {
            self.take_one(event).await?;
            let is_full = self.is_settled() || self.pending.len() >= EVENTS_IN_FLIGHT;
            next = if is_full { None } else { waiting.try_recv().ok() };
        }
        Ok(())
    }

    async fn take_one(&mut self, mut event: AgentEvent) -> Result<(), A2aError> {
        self.agent.before_event(&self.context.session, &mut event);
        match event {
            AgentEvent::Message(message) => self.answer(message).await,
            AgentEvent::Status { state, message } => self.status(state, message).await,
            AgentEvent::Relayed(event) => self.relay(*event).await,
            AgentEvent::Artifact { artifact, append, last_chunk } => {
                let update = TaskArtifactUpdateEvent {
                    task_id: self.context.task_id.clone(),
                    context_id: self.context.context_id.clone(),
                    artifact,
                    append,
                    last_chunk,
                    ..TaskArtifactUpdateEvent::default()
                };
                self.respond(StreamResponse::ArtifactUpdate(update)).await
            }
        }
    }

    /// The agent answers with a message instead of a task; it can do so only first.
    async fn answer(&mut self, mut message: Message) -> Result<(), A2aError> {
        let Some(opened) = self.opened.take_if(|_| self.pending.is_empty()) else {
            let reason = "the agent sent a message after its task had begun".to_owned();
            return Err(A2aError::InvalidAgentResponse { reason });
        };
        message.context_id = Some(self.context.context_id.clone());
        let session = self.context.session.clone();
        if let Err(error) = session.store().await.map_err(|error| fault::of_session(&error)) {
            self.opened = Some(opened);
            self.unsay(error.clone());
            return Err(error);
        }
        let mut event = StreamResponse::Message(message);
        let responded = self.chain.respond(&mut event).await;
        let answer = match (responded, event) {
            (Ok(()), StreamResponse::Message(message)) => {
                if let Some(claim) = self.claim.take() {
                    claim.answer(&message).await;
                }
                Ok(Opened { opening: Opening::Message(Box::new(message)), active: self.active() })
            }
            (Ok(()), _) => return Ok(()),
            (Err(fault), _) => Err(fault::internal(&fault)),
        };
        // A client that has gone away needs no answer.
        let _ = opened.send(answer);
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

    /// Lets the extensions respond to the event, which is then ready to be stored.
    async fn respond(&mut self, mut event: StreamResponse) -> Result<(), A2aError> {
        if self.record.is_none() && self.pending.is_empty() {
            self.turn_task.show(TaskState::Submitted, Some(Timestamp::now()));
        }
        self.chain.respond(&mut event).await.map_err(|fault| fault::internal(&fault))?;
        if let StreamResponse::StatusUpdate(update) = &event {
            self.turn_task.show(update.status.state, update.status.timestamp);
        }
        self.pending.push(event);
        Ok(())
    }

    /// Stores what is ready; the first call tells whoever waits, and creates the task of a new turn.
    async fn store(&mut self) -> Result<(), A2aError> {
        let events = mem::take(&mut self.pending);
        if events.is_empty() {
            return Ok(());
        }
        let Some(record) = self.record.clone() else { return self.create(events).await };
        let subscription = record.subscribe();
        self.open(&record, subscription);
        record.append(events).await.map_err(fault::of_store)
    }

    fn open(&mut self, record: &Arc<TaskRecord>, (snapshot, reader): Subscription) {
        if let Some(opened) = self.opened.take() {
            // A client that has gone away does not stop the task.
            let opening = Opening::Task { record: Arc::clone(record), snapshot, reader };
            let _ = opened.send(Ok(Opened { opening, active: self.active() }));
        }
    }

    /// The extensions that are active here, and at an agent that lives elsewhere.
    fn active(&self) -> Vec<ExtensionUri> {
        let remote = self.context.remote.iter().flat_map(|remote| remote.active());
        self.chain.active().cloned().chain(remote).collect()
    }

    async fn create(&mut self, events: Vec<StreamResponse>) -> Result<(), A2aError> {
        let events: Vec<TaskEvent> = events.into_iter().map(TaskEvent::from).collect();
        let Err(error) = self.try_create(&events).await else { return Ok(()) };
        let is_too_large = matches!(error, StoreError::TooLarge { .. });
        let error = fault::of_store(error);
        // One of the events may be what cannot be stored. Then there is a task that can say so.
        if self.try_create(&[]).await.is_err() {
            self.refuse(error.clone());
        } else if is_too_large && let Some(record) = &self.record {
            // The events before the one that is too much stay.
            return record.append_all(&events).await.map_err(fault::of_store);
        }
        Err(error)
    }

    async fn try_create(&mut self, events: &[TaskEvent]) -> Result<(), StoreError> {
        let task = Task {
            id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(Timestamp::now()) },
            history: vec![(*self.context.message).clone()],
            ..Task::default()
        };
        let cancel = self.context.cancel.clone();
        let (record, subscription) = self.tasks.create(&self.owner, task, events, cancel).await?;
        self.open(&record, subscription);
        self.record = Some(record);
        self.settle_claim();
        Ok(())
    }

    async fn end(
        mut self,
        ending: Ending,
        mut events: mpsc::Receiver<AgentEvent>,
    ) -> Result<Vec<ExtensionUri>, A2aError> {
        let ending = match ending {
            Ending::Returned(result) => self.drain(result, &mut events).await,
            other => other,
        };
        self.tell_of(&ending).await;
        let ending = match ending {
            Ending::Returned(Err(AgentError::Refused(error))) if self.record.is_none() => {
                self.context.session.discard();
                self.refuse(error);
                Ending::Returned(Err(AgentError::Closed))
            }
            other => other,
        };
        let concluded = if self.has_no_task() { self.end_without_task().await } else { self.conclude(ending).await };
        let record = self.record.take();
        self.counters.turn(record.as_ref().map_or(TurnEnd::Taskless, |record| record.task_state().into()));
        match record {
            Some(record) => close(&self.tasks, &record, concluded).await?,
            None => concluded?,
        }
        Ok(self.active())
    }

    /// Takes what the agent had sent before it returned.
    async fn drain(&mut self, result: Result<(), AgentError>, events: &mut mpsc::Receiver<AgentEvent>) -> Ending {
        if self.is_settled() {
            return Ending::Returned(result);
        }
        match self.take(events.try_recv().ok(), events).await {
            Ok(()) => Ending::Returned(result),
            Err(error) => Ending::Broken(error),
        }
    }

    /// Brings the task into the state that the ending calls for, unless the agent has done so itself.
    async fn conclude(&mut self, ending: Ending) -> Result<(), A2aError> {
        let conclusion = self.conclusion(ending);
        if let Err(error) = self.close_session(conclusion.as_ref()).await {
            self.unsay(error);
            return Ok(());
        }
        let announced = match conclusion {
            Some((state, text)) => self.status(state, text.map(|text| self.message(text))).await,
            None => Ok(()),
        };
        let concluded = match announced {
            Ok(()) => self.store().await,
            Err(error) => Err(error),
        };
        let Err(error) = concluded else { return Ok(()) };
        if self.has_no_task() {
            return Err(error);
        }
        // The final state must be reached even when an extension fails on the way to it.
        let failed = self.status_update(TaskState::Failed, Some(self.message(error.to_string())));
        self.pending.push(StreamResponse::StatusUpdate(failed));
        self.store().await
    }

    /// The last state, and what to say about it; `None` when the agent has brought the task there.
    fn conclusion(&self, ending: Ending) -> Option<(TaskState, Option<String>)> {
        Some(match ending {
            Ending::Returned(Ok(()) | Err(AgentError::Closed)) if self.is_settled() => return None,
            Ending::Returned(Ok(()) | Err(AgentError::Closed)) => (TaskState::Completed, None),
            Ending::Returned(Err(AgentError::Failed { message })) => (TaskState::Failed, Some(message)),
            Ending::Returned(Err(error @ AgentError::Internal { .. })) => {
                let error_id = fault::logged(&error);
                let text = format!("The agent failed; the server's log has the details under {error_id}.");
                (TaskState::Failed, Some(text))
            }
            Ending::Returned(Err(error @ AgentError::Broken { .. })) => {
                let error_id = fault::logged(&error);
                (TaskState::Failed, Some(format!("{error} The server's log has the details under {error_id}.")))
            }
            // There is a task, because otherwise the client has been told.
            Ending::Returned(Err(AgentError::Refused(error))) => (self.still_waiting(), Some(error.to_string())),
            Ending::Canceled => (TaskState::Canceled, None),
            Ending::Stopped => {
                (TaskState::Failed, Some("The server is shutting down; send the message again.".to_owned()))
            }
            Ending::TookTooLong => (TaskState::Failed, Some("The agent took too long.".to_owned())),
            Ending::Vetoed(reason) => (TaskState::Rejected, Some(reason)),
            Ending::Broken(error) => (TaskState::Failed, Some(error.to_string())),
        })
    }

    async fn end_without_task(&mut self) -> Result<(), A2aError> {
        self.close_session(None).await
    }

    /// Whether it was answered with a message, or the task could not be created.
    fn has_no_task(&self) -> bool {
        self.record.is_none() && self.opened.is_none()
    }

    fn message(&self, text: String) -> Message {
        let task_id = Some(self.context.task_id.clone());
        Message::agent(self.context.context_id.clone(), task_id, vec![Part::text(text)])
    }
}

/// Ends the turn of a task that is in its last state, unless that could not be stored.
async fn close(tasks: &Tasks, record: &Arc<TaskRecord>, concluded: Result<(), A2aError>) -> Result<(), A2aError> {
    if concluded.is_err() {
        tasks.abandon(record);
    }
    let ended = record.end_turn().await.map_err(fault::of_store);
    if ended.is_err() {
        tasks.abandon(record);
    }
    tasks.leave_if_finished(record);
    concluded.and(ended)
}

/// Why a task takes no message.
pub(crate) fn finished(record: &TaskRecord) -> A2aError {
    let (task_id, state) = (record.id(), record.task_state().name());
    let reason = match record.is_finished() {
        true => format!(
            "task {task_id} is in terminal state {state}; send the message without taskId to go on in the context"
        ),
        false => format!("task {task_id} cannot go on now; try again"),
    };
    A2aError::UnsupportedOperation { reason }
}

/// A turn that breaks off, because the agent panicked or the runtime goes away, must not leave readers waiting.
impl Drop for Turn {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else { return };
        tracing::error!(task = %self.context.task_id, "the turn broke off");
        self.counters.turn(TurnEnd::Failed);
        let failed = self.status_update(TaskState::Failed, Some(self.message("The agent broke off.".to_owned())));
        let event = StreamResponse::StatusUpdate(failed);
        let tasks = Arc::clone(&self.tasks);
        let Ok(runtime) = Handle::try_current() else { return };
        self.running.spawn_on(
            async move {
                let failed = record.append([event]).await.map_err(fault::of_store);
                // The cause is in the log.
                let _ = close(&tasks, &record, failed).await;
            },
            &runtime,
        );
    }
}
