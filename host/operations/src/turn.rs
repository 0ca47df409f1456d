//! One turn of an agent, from the accepted message to its last event. [`Stage`] shows the stages.
//!
//! A turn that has to wait continues in a task of its own, so that neither a client that hangs up nor a slow reader
//! delays it. Each event of the agent passes the response hooks of the extensions, is stored, and only then reaches the
//! readers. Events that the agent sends without waiting in between are stored together, the first of them together with
//! the new task. If the session has staged the user's message, the message is stored before these events and before the
//! agent waits.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext, counted};
use annex_leases::Replica;
use annex_protocol::{A2aError, ExtensionUri, Message, Owner, StreamResponse, TaskState};
use annex_runtime::Chain;
use annex_telemetry::{ACCESS_TARGET, Stage as RequestStage, enter, millis};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::counters::{Counters, TurnEnd};
use crate::fault;
use crate::permits::TurnPermit;
use crate::tasks::Tasks;
use crate::tasks::record::{Subscription, TaskRecord};
use crate::views::turn_task::TurnTask;

mod begin;
mod end;
mod events;
mod leave;
mod remote;
mod running;
mod stage;
mod states;
mod store;

pub(crate) use running::Running;
pub(crate) use stage::{Stage, UserEvent};

/// The most events of the agent that wait for the hooks and the store, and that are stored together.
const EVENTS_IN_FLIGHT: usize = 16;

/// The outcome of an accepted message.
pub(crate) enum Outcome {
    /// The agent answered with a message, without a task.
    Message {
        message: Box<Message>,
        /// The extensions that were active for the answer.
        active: Vec<ExtensionUri>,
    },
    /// A task was created or continued.
    Task(TaskOutcome),
}

/// The task of a message.
pub(crate) struct TaskOutcome {
    pub(crate) record: Arc<TaskRecord>,
    pub(crate) subscription: Subscription,
    /// The extensions that are active so far.
    pub(crate) active: Vec<ExtensionUri>,
    /// The turn. `None` for a repeated message, whose turn began earlier.
    pub(crate) running: Option<Running>,
}

/// A turn, with the parts that it needs in every stage.
pub(crate) struct Turn {
    pub(crate) agent: Arc<dyn AgentExecutor>,
    pub(crate) tasks: Arc<Tasks>,
    /// The owner of the task.
    pub(crate) owner: Owner,
    /// The replica id under which the turn began. `None` if only one process can use the store.
    pub(crate) replica: Option<Replica>,
    /// Held until the turn ends.
    pub(crate) _permit: TurnPermit,
    pub(crate) chain: Chain,
    /// The URIs that find the turn's extensions if the turn is made again.
    pub(crate) requested: Vec<ExtensionUri>,
    /// The data with which another process can continue the turn. `None` if the turn would fail instead.
    pub(crate) stored: Option<Arc<str>>,
    pub(crate) context: TurnContext,
    /// The task as extensions see it.
    pub(crate) turn_task: TurnTask,
    pub(crate) stage: Stage,
    /// Events that have passed the hooks and are not stored yet.
    pub(crate) pending: Vec<StreamResponse>,
    /// True if the events have a reader: the client, or push notifications.
    pub(crate) is_followed: bool,
    /// The time limit of the turn.
    pub(crate) max_duration: Duration,
    /// Cancelled when the server cannot wait for the turn any longer.
    pub(crate) stop: CancellationToken,
    /// The tracker of running turns, which includes this one.
    pub(crate) running: TaskTracker,
    /// Counts the end of the turn.
    pub(crate) counters: Arc<Counters>,
    /// The time at which the message was accepted.
    pub(crate) began: Instant,
}

/// The task's state after an event that ends the agent's work: a final state, or an interrupted one.
type Settled = Option<TaskState>;

/// Why a turn ends.
enum Ending {
    /// The agent returned, or its last event has settled the task.
    Returned(Result<(), AgentError>, Settled),
    Canceled,
    Stopped,
    TookTooLong,
    /// Another process may own the task.
    Lost,
    /// An extension vetoed the turn before the agent ran.
    Vetoed(String),
    Broken(A2aError),
}

impl Turn {
    /// Runs the agent to its end or cancellation, and leaves the task in a final or interrupted state. Returns the
    /// extensions that were active until the end.
    ///
    /// # Errors
    /// When that state cannot be stored.
    pub(crate) async fn run(mut self) -> Result<Vec<ExtensionUri>, A2aError> {
        self.tell_ids();
        let (sender, mut events) = EventSender::bounded(EVENTS_IN_FLIGHT);
        match self.begin().await {
            Ok(None) => {}
            Ok(Some(ending)) => return self.end(ending, events).await,
            Err(error) => {
                self.refuse(error);
                return Ok(Vec::new());
            }
        }
        let agent = Arc::clone(&self.agent);
        let stage = enter(RequestStage::Agent);
        let mut execution = counted(self.context.steps.cpu(), agent.execute(self.context.clone(), sender));
        let is_stopped = self.context.cancel.is_cancelled() || self.stop.is_cancelled();
        // An agent that was stopped before its start is not polled. `follow` determines the reason.
        let first = if is_stopped {
            Poll::Pending
        } else {
            poll_fn(|context| Poll::Ready(execution.as_mut().poll(context))).await
        };
        let ending = match first {
            // A turn that never waits needs no timer.
            Poll::Ready(result) => Ending::Returned(result, None),
            Poll::Pending => match self.follow(&mut execution, &mut events).await {
                Ok(ending) => ending,
                Err(error) => {
                    self.roll_back(error);
                    return Ok(Vec::new());
                }
            },
        };
        // Dropping the agent's future ends any remaining work.
        drop(execution);
        drop(stage);
        self.end(ending, events).await
    }

    /// Stores the agent's events from its first wait until the turn ends.
    ///
    /// # Errors
    /// When the user's message cannot be stored.
    async fn follow(
        &mut self,
        execution: &mut (impl Future<Output = Result<(), AgentError>> + Unpin),
        events: &mut mpsc::Receiver<AgentEvent>,
    ) -> Result<Ending, A2aError> {
        let cancel = self.context.cancel.clone();
        let stop = self.stop.clone();
        let mut deadline = pin!(tokio::time::sleep(self.max_duration));
        let session = self.context.session.clone();
        if !session.is_stored() {
            // The agent is polled here only while it holds the lock. It is then storing an event of its own, together
            // with the message.
            let runner = self.runner();
            let locked = tokio::select! {
                biased;
                locked = session.lock() => locked,
                ending = ended_by_others(runner.as_ref(), &cancel, &stop, deadline.as_mut()) => return Ok(ending),
                result = &mut *execution => return Ok(Ending::Returned(result, None)),
            };
            locked.store().await.map_err(|error| fault::of_session(&error))?;
        }
        // The events from the agent's first poll are stored before the agent continues.
        let mut sent = events.try_recv().ok();
        loop {
            let event = match sent.take() {
                Some(event) => event,
                None => {
                    // The task may have belonged to a turn of another replica before.
                    let runner = self.runner();
                    tokio::select! {
                        biased;
                        ending = ended_by_others(runner.as_ref(), &cancel, &stop, deadline.as_mut()) => return Ok(ending),
                        // The agent is polled before its events are read, so that all events it sends without waiting
                        // are available.
                        result = &mut *execution => return Ok(Ending::Returned(result, None)),
                        Some(event) = events.recv() => event,
                    }
                }
            };
            match self.deliver(event, events).await {
                // After an event that settles the task, the agent's further work is ignored.
                Ok(settled) if settled.is_some() || self.stage.is_finished() => {
                    return Ok(Ending::Returned(Ok(()), settled));
                }
                Ok(_) => {}
                Err(_) if self.is_lost() => return Ok(Ending::Lost),
                Err(error) => return Ok(Ending::Broken(error)),
            }
        }
    }

    /// Adds the ids to the log lines, even if the turn runs without a request.
    fn tell_ids(&self) {
        annex_telemetry::with(|request| {
            request.is_about(Some(self.context.context_id.clone().into()), Some(self.context.task_id.clone().into()));
        });
    }

    /// The tenant's name for log lines. `None` for the agent of the config itself.
    fn tenant(&self) -> Option<&str> {
        Some(self.owner.tenant.as_str()).filter(|tenant| !tenant.is_empty())
    }

    /// Counts the end of the turn. If the log line of the request is already written, the turn gets a line of its own.
    fn count(&self, end: TurnEnd) {
        let took = self.began.elapsed();
        self.counters.turn(end, took);
        annex_telemetry::with(|request| {
            if request.is_logged() && request.is_over() {
                self.write_line(end, took);
            }
        });
    }

    fn write_line(&self, end: TurnEnd, took: Duration) {
        let TurnContext { context_id: context, task_id: task, .. } = &self.context;
        let (outcome, ms) = (end.name(), millis(took));
        tracing::info!(target: ACCESS_TARGET, tenant = self.tenant(), %context, %task, outcome, ms, "turn");
    }

    /// The extensions that are active here and at a remote agent.
    fn active(&self) -> Vec<ExtensionUri> {
        let remote = self.context.remote.iter().flat_map(|remote| remote.active());
        self.chain.active().cloned().chain(remote).collect()
    }
}

/// Resolves when something other than the agent ends the turn.
async fn ended_by_others(
    runner: Option<&Replica>,
    cancel: &CancellationToken,
    stop: &CancellationToken,
    deadline: Pin<&mut Sleep>,
) -> Ending {
    let lost = async {
        match runner {
            Some(runner) => runner.over().await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        () = lost => Ending::Lost,
        () = cancel.cancelled() => Ending::Canceled,
        () = stop.cancelled() => Ending::Stopped,
        () = deadline => Ending::TookTooLong,
    }
}
