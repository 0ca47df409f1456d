//! Runs one turn of an agent, from the stored message to its last event. [`Stage`] shows the stages.
//!
//! A turn that has to wait continues in a tokio task of its own, so that neither a client that hangs up nor a slow
//! reader delays it. Each event of the agent passes the response hooks of the extensions, is stored, and only then
//! reaches the readers. Events that the agent sends without a wait between them are stored together. The events before
//! the agent's end are stored together with that end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annex_agent::{AgentError, AgentEvent, EventSender, TurnContext, counted};
use annex_conversation::Entry;
use annex_leases::Replica;
use annex_protocol::{A2aError, ExtensionUri, Message, TaskState};
use annex_runtime::{BeginOutcome, Chain};
use annex_telemetry::traces::{Span, SpanKind};
use annex_telemetry::{ACCESS_TARGET, Stage as RequestStage, enter, millis, whole_within};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::counters::TurnEnd;
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::tasks::record::{Subscription, TaskRecord};
use crate::views::turn_task::TurnTask;

mod answer;
mod closing;
mod end;
mod events;
mod leave;
mod output;
mod questions;
mod receipt;
mod refusal;
mod remote;
mod reply;
mod running;
mod shown_answer;
mod stage;
mod states;
mod store;

pub(crate) use closing::closing_event;
pub(crate) use running::{Running, TurnResult};
pub(crate) use shown_answer::ShownAnswer;
pub(crate) use stage::Stage;

/// The maximum number of the agent's events that wait for the hooks and the store. It is also the maximum number of events that
/// are stored together.
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

/// The outcome of a message that has a task.
pub(crate) struct TaskOutcome {
    pub(crate) record: Arc<TaskRecord>,
    pub(crate) subscription: Subscription,
    /// The extensions that are active when the client gets the task.
    pub(crate) active: Vec<ExtensionUri>,
    /// The turn. `None` for a repeated message, whose turn began earlier.
    pub(crate) running: Option<Running>,
}

/// A turn whose message is stored.
pub(crate) struct Turn {
    pub(crate) handler: Arc<RequestHandler>,
    pub(crate) record: Arc<TaskRecord>,
    /// Held until the turn ends.
    pub(crate) _permit: TurnPermit,
    pub(crate) chain: Chain,
    /// The URIs that activate the same extensions if the turn runs again.
    pub(crate) requested: Vec<ExtensionUri>,
    pub(crate) context: TurnContext,
    /// The task as extensions see it.
    pub(crate) turn_task: TurnTask,
    pub(crate) stage: Stage,
    /// The outcome of the hooks at the beginning of the turn. `None` once the turn has handled the outcome.
    pub(crate) beginning: Option<BeginOutcome>,
    /// Events and notes that have passed the hooks and are not stored yet.
    pub(crate) pending: Vec<Entry>,
    /// The content of the turn as the client saw it. `None` if no extension has the hook `output`.
    pub(crate) shown: Option<Box<ShownAnswer>>,
    /// True once the agent has relayed an event of an upstream. The content of such events may change the session's state.
    pub(crate) relays: bool,
    /// True if the events have a reader: the client, or push notifications.
    pub(crate) is_followed: bool,
    /// True if the message of the turn has opened the task. False if the task existed before.
    pub(crate) opened: bool,
    /// The time at which the turn began.
    pub(crate) began: Instant,
}

/// The task's state after an event that ends the agent's work: a final or an interrupted state. `None` if the agent still
/// works.
type Settled = Option<TaskState>;

/// The reason why a turn ends.
enum Ending {
    /// The agent returned, or its last event has settled the task.
    Returned(Result<(), AgentError>, Settled),
    /// The agent answered a new task with a message.
    Answered(Message),
    Canceled,
    Stopped,
    TookTooLong,
    /// Another process may own the task.
    Lost,
    /// An extension vetoed the turn before the agent ran.
    Vetoed(String),
    Broken(A2aError),
}

/// The turn's progress after an event of the agent.
enum Progress {
    GoesOn,
    Ends(Ending),
}

impl Turn {
    /// Runs the agent to its end or cancellation, and leaves the task in a final or interrupted state. Returns the
    /// extensions that were active until the end.
    ///
    /// # Errors
    /// When that state cannot be stored.
    pub(crate) async fn run(mut self) -> TurnResult {
        self.tell_ids();
        if self.shown.is_some() {
            // The session's events are amended at the end of the turn.
            self.context.conversation.keep_staged().await;
        }
        let (sender, mut events) = EventSender::bounded(EVENTS_IN_FLIGHT);
        if let Some(ending) = self.beginning().await {
            return self.end(ending, events).await;
        }
        let agent = Arc::clone(&self.handler.agent);
        let stage = enter(RequestStage::Agent);
        let execution = counted(self.context.steps.cpu(), agent.execute(self.context.clone(), sender));
        let mut execution = whole_within(agent_span(agent.name()), execution);
        let is_stopped = self.context.cancel.is_cancelled() || self.handler.process.stop.is_cancelled();
        // An agent that was stopped before its start is not polled. `follow` determines the reason.
        let first = if is_stopped {
            Poll::Pending
        } else {
            poll_fn(|context| Poll::Ready(execution.as_mut().poll(context))).await
        };
        let ending = match first {
            // A turn that never waits needs no timer.
            Poll::Ready(result) => Ending::Returned(result, None),
            Poll::Pending => self.follow(&mut execution, &mut events).await,
        };
        // Dropping the agent's future ends any remaining work.
        drop(execution);
        drop(stage);
        self.end(ending, events).await
    }

    /// Acts on the outcome of the hooks at the beginning of the turn. Returns the ending of the turn if the agent must
    /// not run.
    async fn beginning(&mut self) -> Option<Ending> {
        match self.beginning.take()? {
            BeginOutcome::Proceed => None,
            BeginOutcome::Vetoed(reason) => Some(Ending::Vetoed(reason)),
            BeginOutcome::Answered(answer) => Some(Box::pin(self.reply(*answer)).await),
            BeginOutcome::Interrupted(interruption) => {
                let by = interruption.by.clone();
                let mut update = self.status_update(interruption.state, None);
                interruption.place(&mut update);
                Some(match self.change(update, Some(by)).await {
                    Ok(settled) => Ending::Returned(Ok(()), settled),
                    Err(error) => Ending::Broken(error),
                })
            }
        }
    }

    /// Stores the agent's events, from the agent's first wait until the turn ends.
    async fn follow(
        &mut self,
        execution: &mut (impl Future<Output = Result<(), AgentError>> + Unpin),
        events: &mut mpsc::Receiver<AgentEvent>,
    ) -> Ending {
        let (cancel, stop) = (self.context.cancel.clone(), self.handler.process.stop.clone());
        let replica = self.context.conversation.fence().replica.clone();
        let mut deadline = pin!(tokio::time::sleep(self.handler.turn_limiter.bounds().longest));
        // The events from the agent's first poll are stored first.
        let mut sent = events.try_recv().ok();
        loop {
            let event = match sent.take() {
                Some(event) => event,
                None => tokio::select! {
                    biased;
                    ending = ended_by_others(&replica, &cancel, &stop, deadline.as_mut()) => return ending,
                    // The agent is polled before its events are read, so that all events it sends without waiting
                    // are available.
                    result = &mut *execution => return Ending::Returned(result, None),
                    Some(event) = events.recv() => event,
                },
            };
            let (progress, returned) = self.deliver_beside(event, events, execution).await;
            match progress {
                // After an event that settles the task, the agent's further work is ignored.
                Ok(Progress::Ends(ending)) => return ending,
                Ok(Progress::GoesOn) => {
                    if let Some(result) = returned {
                        return Ending::Returned(result, None);
                    }
                }
                Err(_) if self.is_lost() => return Ending::Lost,
                Err(error) => return Ending::Broken(error),
            }
        }
    }

    /// Delivers the event. The agent continues meanwhile, because it may have a lock or a connection of the store that the
    /// delivery waits for. Also returns the agent's result, if the agent has returned.
    async fn deliver_beside(
        &mut self,
        event: AgentEvent,
        events: &mut mpsc::Receiver<AgentEvent>,
        execution: &mut (impl Future<Output = Result<(), AgentError>> + Unpin),
    ) -> (Result<Progress, A2aError>, Option<Result<(), AgentError>>) {
        let mut returned = None;
        let mut delivered = pin!(self.deliver(event, events));
        loop {
            tokio::select! {
                biased;
                progress = &mut delivered => return (progress, returned),
                result = &mut *execution, if returned.is_none() => returned = Some(result),
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
        Some(self.record.owner().tenant.as_str()).filter(|tenant| !tenant.is_empty())
    }

    /// Counts the end of the turn. If the log line of the request is already written, the turn gets a line of its own.
    fn count(&self, end: TurnEnd) {
        let took = self.began.elapsed();
        self.handler.process.counters.turn(end, took);
        annex_telemetry::note("annex.turn.outcome", end.name());
        if matches!(end, TurnEnd::Failed) {
            annex_telemetry::fail(end.name());
        }
        annex_telemetry::with(|request| {
            if request.is_logged() && request.is_over() {
                self.write_line(end, took);
            }
        });
    }

    fn write_line(&self, end: TurnEnd, took: Duration) {
        let TurnContext { context_id: context, task_id: task, .. } = &self.context;
        let (outcome, ms, trace_id) = (end.name(), millis(took), annex_telemetry::ids().trace());
        tracing::info!(target: ACCESS_TARGET, tenant = self.tenant(), %context, %task, trace_id, outcome, ms, "turn");
    }

    /// The extensions that are active here and at a remote agent.
    fn active(&self) -> Vec<ExtensionUri> {
        let remote = self.context.remote.iter().flat_map(|remote| remote.active());
        self.chain.active().cloned().chain(remote).collect()
    }
}

/// Begins the span of the agent, with the attributes that OpenTelemetry defines for generative AI.
fn agent_span(name: &str) -> Span {
    let mut span = annex_telemetry::span(SpanKind::Internal, "invoke_agent");
    if span.is_recording() {
        span.extend_name(name);
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set_text("gen_ai.agent.name", name);
    }
    span
}

/// Resolves when something other than the agent ends the turn.
async fn ended_by_others(
    replica: &Replica,
    cancel: &CancellationToken,
    stop: &CancellationToken,
    deadline: Pin<&mut Sleep>,
) -> Ending {
    tokio::select! {
        biased;
        () = replica.over() => Ending::Lost,
        () = cancel.cancelled() => Ending::Canceled,
        () = stop.cancelled() => Ending::Stopped,
        () = deadline => Ending::TookTooLong,
    }
}
