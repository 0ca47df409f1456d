//! One turn of an agent, from the accepted message to the end of its events. [`Stage`] draws how it goes.
//!
//! A turn that waits goes on in a task of its own: neither a client that goes away nor a slow reader holds it up. What the
//! agent sends passes the extensions' response hooks, is stored, and only then reaches the readers. Events that the agent
//! sends without waiting in between are stored together, the task itself with the first of them. The user's message, if the
//! session has only staged it, is stored before all of them, and before the agent waits.

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

/// Agent events that wait for the hooks and the store; also the most that are stored together.
const EVENTS_IN_FLIGHT: usize = 16;

/// The outcome for an accepted message.
pub(crate) enum Outcome {
    /// It was answered with a message; there is no task.
    Message {
        message: Box<Message>,
        /// The extensions that were active for it.
        active: Vec<ExtensionUri>,
    },
    /// A task works on it.
    Task(TaskOutcome),
}

/// The task that works on a message.
pub(crate) struct TaskOutcome {
    pub(crate) record: Arc<TaskRecord>,
    pub(crate) subscription: Subscription,
    /// The extensions that were active up to now.
    pub(crate) active: Vec<ExtensionUri>,
    /// The turn, once it has begun; `None` for a message that came before.
    pub(crate) running: Option<Running>,
}

/// A turn, with what it needs in every stage.
pub(crate) struct Turn {
    pub(crate) agent: Arc<dyn AgentExecutor>,
    pub(crate) tasks: Arc<Tasks>,
    /// The owner of the task.
    pub(crate) owner: Owner,
    /// The replica that the turn has begun as one of; `None` where one process has the store.
    pub(crate) replica: Option<Replica>,
    /// Kept until the turn is over.
    pub(crate) _permit: TurnPermit,
    pub(crate) chain: Chain,
    /// The URIs by which the turn finds its extensions when it is made again.
    pub(crate) requested: Vec<ExtensionUri>,
    /// The text with which another process goes on with the turn; `None` where it would fail.
    pub(crate) stored: Option<Arc<str>>,
    pub(crate) context: TurnContext,
    /// The view of the task that the extensions get.
    pub(crate) turn_task: TurnTask,
    pub(crate) stage: Stage,
    /// Events that have passed the hooks and are not stored.
    pub(crate) pending: Vec<StreamResponse>,
    /// True if somebody reads the events as they come: the client, or whoever is notified of them.
    pub(crate) is_followed: bool,
    /// The longest that the turn may take.
    pub(crate) max_duration: Duration,
    /// Fires when the server cannot wait for the turn any longer.
    pub(crate) stop: CancellationToken,
    /// Counts the running turns, this one among them.
    pub(crate) running: TaskTracker,
    /// Counts how the turn ends.
    pub(crate) counters: Arc<Counters>,
    /// The time at which the message was taken.
    pub(crate) began: Instant,
}

/// The state in which an event has left the task, if only another message, or nothing, takes it on from there.
type Settled = Option<TaskState>;

/// The reason why the events of a turn ended.
enum Ending {
    /// The agent returned, or has settled its task.
    Returned(Result<(), AgentError>, Settled),
    Canceled,
    Stopped,
    TookTooLong,
    /// The task may be another process's by now.
    Lost,
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
        // An agent that was stopped before it began is not polled: `follow` finds the reason first.
        let first = if is_stopped {
            Poll::Pending
        } else {
            poll_fn(|context| Poll::Ready(execution.as_mut().poll(context))).await
        };
        let ending = match first {
            // A turn that never waits needs no clock.
            Poll::Ready(result) => Ending::Returned(result, None),
            Poll::Pending => match self.follow(&mut execution, &mut events).await {
                Ok(ending) => ending,
                Err(error) => {
                    self.roll_back(error);
                    return Ok(Vec::new());
                }
            },
        };
        // Whatever the agent is still doing stops here.
        drop(execution);
        drop(stage);
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
        let cancel = self.context.cancel.clone();
        let stop = self.stop.clone();
        let mut deadline = pin!(tokio::time::sleep(self.max_duration));
        let session = self.context.session.clone();
        if !session.is_stored() {
            // The agent goes on only if it is storing an event itself, with which the message is stored.
            let runner = self.runner();
            let locked = tokio::select! {
                biased;
                locked = session.lock() => locked,
                ending = ended_by_others(runner.as_ref(), &cancel, &stop, deadline.as_mut()) => return Ok(ending),
                result = &mut *execution => return Ok(Ending::Returned(result, None)),
            };
            locked.store().await.map_err(|error| fault::of_session(&error))?;
        }
        // The events that the agent sent in its first poll are stored before the agent goes on.
        let mut sent = events.try_recv().ok();
        loop {
            let event = match sent.take() {
                Some(event) => event,
                None => {
                    // The task may have been another replica's turn before.
                    let runner = self.runner();
                    tokio::select! {
                        biased;
                        ending = ended_by_others(runner.as_ref(), &cancel, &stop, deadline.as_mut()) => return Ok(ending),
                        // Before its events are read, so that all that it sends without waiting is there.
                        result = &mut *execution => return Ok(Ending::Returned(result, None)),
                        Some(event) = events.recv() => event,
                    }
                }
            };
            match self.deliver(event, events).await {
                // What an agent does after it has settled its task is not looked at.
                Ok(settled) if settled.is_some() || self.stage.is_finished() => {
                    return Ok(Ending::Returned(Ok(()), settled));
                }
                Ok(_) => {}
                Err(_) if self.is_lost() => return Ok(Ending::Lost),
                Err(error) => return Ok(Ending::Broken(error)),
            }
        }
    }

    /// For the lines of the log, also where the turn goes on without a request.
    fn tell_ids(&self) {
        annex_telemetry::with(|request| {
            request.is_about(Some(self.context.context_id.clone().into()), Some(self.context.task_id.clone().into()));
        });
    }

    /// The tenant, for lines of the log; `None` for the config's own agent.
    fn tenant(&self) -> Option<&str> {
        Some(self.owner.tenant.as_str()).filter(|tenant| !tenant.is_empty())
    }

    /// Counts how it ends. The line of a request that is over could not say so, and the turn has one of its own.
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

    /// The extensions that are active here, and at an agent that lives elsewhere.
    fn active(&self) -> Vec<ExtensionUri> {
        let remote = self.context.remote.iter().flat_map(|remote| remote.active());
        self.chain.active().cloned().chain(remote).collect()
    }
}

/// Resolves when something other than its agent ends a turn.
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
