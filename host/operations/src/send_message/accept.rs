//! The line that every message takes: checked, negotiated, placed, validated by the extensions, and given to a turn, which
//! stores it with its state delta.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annex_agent::{Steps, TurnContext, UpstreamContext};
use annex_leases::Replica;
use annex_protocol::{A2aError, ContextId, Message, Owner, SendMessageRequest, TaskId, TaskPushNotificationConfig};
use annex_runtime::{Chain, Extension, Installed, RequestOutcome, TurnRequest, TurnView};
use annex_session::{Beginning, Event, Following, StateDelta, TurnSession};
use annex_tasks::{Excess, TaskLimits, TaskSize};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::activation::{self, Occasion};
use crate::counters::Reception;
use crate::deduplication::{self, Delivery, FirstDelivery};
use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::send_message::{STREAMING, request_check};
use crate::service_parameters::ServiceParameters;
use crate::tasks::record::{self, TaskRecord};
use crate::turn::{Outcome, Stage, TaskOutcome, Turn, UserEvent};
use crate::views::VisibleTurn;
use crate::views::scoped_keys::session_key;
use crate::views::turn_task::TurnTask;

/// A message that waits longer for the turn before it has its stream opened. Most wait for the store alone, and less long.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The conversation and the task that a message belongs to.
pub(crate) struct Target {
    pub(crate) context_id: ContextId,
    pub(crate) task_id: TaskId,
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// True if this server has just named the context, so that nobody else can know it yet.
    is_new: bool,
    /// The owner of the task.
    pub(crate) owner: Owner,
    /// The replica that this process was when the message came; `None` where one process has the store.
    pub(crate) replica: Option<Replica>,
    /// Held until it is settled that the message is taken.
    delivery: Option<FirstDelivery>,
    /// The view of the task that the extensions get.
    turn_task: TurnTask,
    /// The steps of the agent, which the extensions see too.
    steps: Steps,
}

/// The parts that a turn is made of.
pub(crate) struct TurnResources {
    pub(crate) chain: Chain,
    pub(crate) session: TurnSession,
    pub(crate) permit: TurnPermit,
    /// The user's message for the session. `None` when an extension takes the task up: there is no new message then.
    pub(crate) user_event: Option<Box<UserEvent>>,
    /// The request. Its extensions are those by which the turn finds them when it is made again.
    pub(crate) call: ServiceParameters,
    /// The context for an agent that lives elsewhere; `None` for all others.
    pub(crate) remote: Option<UpstreamContext>,
    /// Keeps a server that drains waiting until the turn itself does.
    pub(crate) counted: TaskTrackerToken,
    /// True if the client reads the events as they come.
    pub(crate) streams: bool,
}

impl RequestHandler {
    /// Takes a message, counts it and traces it.
    pub(crate) async fn accept(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        request: SendMessageRequest,
    ) -> Result<Outcome, A2aError> {
        let span = tracing::debug_span!(target: crate::LOG_TARGET, "request", operation, context = Empty, task = Empty, verdict = Empty);
        let (reception, outcome) =
            match self.for_tenant(self.take(call, operation, request)).instrument(span.clone()).await {
                Ok((reception, outcome)) => (reception, Ok(outcome)),
                Err(error) => (Reception::from(&error), Err(error)),
            };
        self.counters.message(reception);
        if !span.is_disabled() {
            span.record("verdict", reception.name());
            tracing::debug!(target: crate::LOG_TARGET, parent: &span, "the message has been taken or refused");
        }
        outcome
    }

    /// The line that every message takes: checked, negotiated, placed, validated by the extensions, and given to a turn,
    /// which stores it with its state delta. Nothing is left behind when it is refused. Only where the push config of a
    /// message whose turn has begun cannot be stored, the client gets the error and the task goes on.
    async fn take(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        mut request: SendMessageRequest,
    ) -> Result<(Reception, Outcome), A2aError> {
        request_check::check(&request)?;
        // Before the store is asked for anything.
        self.check_work()?;
        // One set for the whole request, so that a set that replaces it is never seen in part.
        let extensions = self.extensions.current()?;
        let record = self.record_of(&call.owner, &request.message).await;
        let pinned = match &record {
            Ok(Some(record)) => self.tasks.pinned(record).await.map_err(fault::of_store)?,
            // What is wrong is said below.
            Ok(None) | Err(_) => Vec::new(),
        };
        let installed = installed_with(&pinned, &extensions);
        // Before any task, session or guest exists: a client that lacks a required extension leaves nothing behind.
        let active = activation::negotiate(&installed, &extensions.passed_on, &Occasion::message(call, &request))?;
        self.catch_up_with(call, &record).await;
        self.check_push(&request).await?;
        let mut target = Target::new(&call.owner, &request.message, record?, self.counted(steps_for(&active)))?;
        self.input_modes.check(&request.message)?;
        // A context that is named may have a session, which is known when it is read.
        if target.is_new {
            self.check_new_session()?;
        }
        match self.remember(&request, &mut target).await? {
            Some(Delivery::Repeated(task)) => return self.repeated(&call.owner, &task).await,
            Some(Delivery::Answered(message)) => {
                return Ok((Reception::Repeated, Outcome::Message { message, active: Vec::new() }));
            }
            Some(Delivery::New(delivery)) => target.delivery = Some(delivery),
            Some(Delivery::Left(delivery, task)) => target.take_over(delivery, task),
            None => {}
        }
        target.tell_task();
        // Not before: a message that is repeated gets its task, also when that is finished by now.
        target.check_open()?;
        target.check_waits()?;
        target.check_size(&request.message, &self.tasks.limits())?;
        self.check_room(&request).await?;
        // Before the wait for the context, so that the turns that wait there are bounded as well.
        let permit = self.turn_limiter.take(&call.owner).await?;
        let session = announced(call, &active, self.begin_turn(&call.owner, &target)).await?;
        if !target.is_new && !session.exists() {
            self.check_new_session()?;
        }
        // Counts as a turn from here on. A server that begins to drain now waits for it.
        let counted = self.running.token();
        self.check_begins()?;
        // The turn that ran in the context until now may have ended the task.
        target.check_open()?;
        let view = self.views.of_turn(&active, &call.owner, target.visible(&session)).await?;
        let remote = self.upstream_context(call, &extensions, (&session, &target.task_id), &request).await?;
        let hooks = hook_request(call, operation, &request, &target, view);
        let RequestOutcome { chain, delta, parts } =
            Chain::run_request_hooks(&active, &hooks).await.map_err(fault::of_hook)?;
        if let Some(parts) = parts {
            request.message.parts = parts.into();
        }
        let mut delta = StateDelta::from(delta);
        self.agent.before_turn(&request, &session, &mut delta)?;
        // After the hooks, to which a task id means that the message continues a task.
        target.place(&mut request.message);
        // Others have sent messages meanwhile, or an extension has rewritten this one.
        target.check_size(&request.message, &self.tasks.limits())?;
        let id = deduplication::event_id(&target.task_id, &request.message.message_id);
        let event = Event { id, ..Event::of_user(target.task_id.clone(), request.message.parts.clone(), delta) };
        let user_event = Some(Box::new(UserEvent { event, following: self.following(&target, &active) }));
        let streams = operation == STREAMING;
        let call = activation::to_ask_again(call.clone(), &extensions.passed_on, &active);
        let resources = TurnResources { chain, user_event, session, permit, call, remote, counted, streams };
        Ok((Reception::Started, self.start(request, target, resources).await?))
    }

    /// The task that the message continues, if it names one.
    async fn record_of(&self, owner: &Owner, message: &Message) -> Result<Option<Arc<TaskRecord>>, A2aError> {
        let Some(task_id) = &message.task_id else { return Ok(None) };
        self.tasks.open(owner, task_id).await.map(Some)
    }

    /// Asks an agent elsewhere how the task that the message continues goes on there.
    async fn catch_up_with(&self, call: &ServiceParameters, record: &Result<Option<Arc<TaskRecord>>, A2aError>) {
        if let Ok(Some(record)) = record {
            self.catch_up_now(call, record).await;
        }
    }

    /// Waits for its turn in the context and opens the session. A new one has nothing to read, besides what it may share.
    pub(crate) async fn begin_turn(&self, owner: &Owner, target: &Target) -> Result<TurnSession, A2aError> {
        let key = session_key(Arc::clone(&self.app), owner, &target.context_id);
        // Before the wait: a process that loses its lease meanwhile does not take the turn up under another one.
        let beginning = Beginning { place: self.sessions.place(), history: self.agent.reads_history() };
        let opened = async {
            if !target.is_new {
                return TurnSession::open(&self.sessions, key, &self.turns, beginning).await;
            }
            // Nobody else knows a context that is new, so there is no session to read and nobody to wait for.
            let guard = self.turns.begin(&key).await?;
            if self.agent.reads_shared_state() {
                TurnSession::read_new(&self.sessions, key, guard, beginning).await
            } else {
                Ok(TurnSession::open_new(&self.sessions, key, guard, beginning))
            }
        };
        tokio::select! {
            biased;
            opened = opened => opened.map_err(|error| fault::of_session(&error)),
            () = self.draining.cancelled() => {
                Err(A2aError::Overloaded { reason: "the server is draining; send the message again".to_owned() })
            }
        }
    }

    /// Tells what may follow the user's message before the agent answers.
    fn following(&self, target: &Target, active: &[Arc<Extension>]) -> Following {
        // Whoever reads a task sees a message that joins it, and the session must not lack that message after a crash.
        let is_read_by_others = target.record.is_some();
        let extensions_reach_out = active.iter().any(|extension| extension.grants().reach_out());
        if is_read_by_others || extensions_reach_out || self.agent.reaches_out() {
            Following::Effects
        } else {
            Following::Answer
        }
    }

    /// Begins the turn and waits for the agent's first event.
    pub(crate) async fn start(
        &self,
        request: SendMessageRequest,
        target: Target,
        resources: TurnResources,
    ) -> Result<Outcome, A2aError> {
        let TurnResources { chain, user_event, session, permit, call, remote, counted, streams } = resources;
        let context = TurnContext {
            task_id: target.task_id,
            context_id: target.context_id,
            message: Arc::new(request.message),
            metadata: Arc::new(request.metadata),
            session,
            steps: target.steps,
            cancel: CancellationToken::new(),
            remote: remote.map(Arc::new),
        };
        let push_config = request.configuration.task_push_notification_config;
        let continues = target.record.is_some();
        let (client, outcome) = oneshot::channel();
        let stage = Stage::Accepted { user_event, task: target.record, client, delivery: target.delivery };
        let turn = Turn {
            agent: Arc::clone(&self.agent),
            tasks: Arc::clone(&self.tasks),
            owner: target.owner,
            replica: target.replica,
            _permit: permit,
            chain,
            stored: self.stored_turn(&call.requested),
            requested: call.requested.clone(),
            context,
            turn_task: target.turn_task,
            stage,
            pending: Vec::new(),
            is_followed: streams || push_config.is_some() || continues,
            max_duration: self.turn_limiter.bounds().longest,
            stop: self.stop.clone(),
            running: self.running.clone(),
            counters: Arc::clone(&self.counters),
            began: Instant::now(),
        };
        let running = turn.begin_running();
        // The turn counts by itself now.
        drop(counted);
        let mut outcome = outcome.await.map_err(|gone| fault::internal(&gone))??;
        if let Outcome::Task(task) = &mut outcome {
            task.running = Some(running);
            self.notify(task, &call, push_config, continues).await?;
        }
        Ok(outcome)
    }

    /// Sends the events of the task to whoever is to be notified of them.
    async fn notify(
        &self,
        task: &TaskOutcome,
        call: &ServiceParameters,
        config: Option<TaskPushNotificationConfig>,
        continues: bool,
    ) -> Result<(), A2aError> {
        let (Some(reader), Some(push)) = (&task.subscription.reader, &self.push) else { return Ok(()) };
        if config.is_some() {
            self.watch(call, &task.record);
        }
        match config {
            Some(config) => push.put(&task.record, task.subscription.clone(), config).await.map(drop),
            None if continues => push.forward(&task.record, reader.clone()).await,
            // A new task has no other configs. Whoever registers one later brings a reader.
            None => Ok(()),
        }
    }
}

/// The installed extensions, in the versions that accepted the task where that task has pinned some. The requests that each is
/// active for are what the operator says now.
pub(crate) fn installed_with<'a>(pinned: &[Arc<Extension>], extensions: &'a ExtensionSet) -> Cow<'a, Installed> {
    if pinned.is_empty() {
        return Cow::Borrowed(&extensions.installed);
    }
    extensions.installed.with_versions(pinned).map_or_else(
        |error| {
            tracing::warn!(target: crate::LOG_TARGET, %error, "a waiting task goes on with what is installed, because its versions do not fit");
            Cow::Borrowed(&extensions.installed)
        },
        Cow::Owned,
    )
}

impl Target {
    /// Finds or makes the ids of the conversation and the task (A2A 1.0 section 3.4), and has the log name them; `record` is
    /// that of the task that the message names.
    fn new(owner: &Owner, message: &Message, record: Option<Arc<TaskRecord>>, steps: Steps) -> Result<Self, A2aError> {
        Self::placed(owner, message, record, steps).inspect(Self::tell_context)
    }

    fn placed(
        owner: &Owner,
        message: &Message,
        record: Option<Arc<TaskRecord>>,
        steps: Steps,
    ) -> Result<Self, A2aError> {
        if let Some(record) = record {
            if message.context_id.as_ref().is_some_and(|named| named != record.context_id()) {
                let description = format!("is not the context of task {}; leave it out", record.id());
                return Err(A2aError::invalid_field("message.contextId", description));
            }
            return Ok(Self::of_task(owner, record, steps));
        }
        let is_new = message.context_id.is_none();
        let context_id = message.context_id.clone().unwrap_or_else(ContextId::generate);
        let task_id = TaskId::generate();
        let owner = owner.clone();
        let turn_task = TurnTask::new(task_id.clone(), context_id.clone());
        let replica = None;
        Ok(Self { context_id, task_id, record: None, is_new, owner, replica, delivery: None, turn_task, steps })
    }

    /// A task that is there already.
    pub(crate) fn of_task(owner: &Owner, record: Arc<TaskRecord>, steps: Steps) -> Self {
        let task_id = record.id().clone();
        let context_id = record.context_id().clone();
        let owner = owner.clone();
        let turn_task = TurnTask::new(task_id.clone(), context_id.clone());
        let snapshot = record.snapshot();
        turn_task.show(snapshot.state(), snapshot.status_at());
        let (replica, delivery) = (None, None);
        Self { context_id, task_id, record: Some(record), is_new: false, owner, replica, delivery, turn_task, steps }
    }

    /// For the lines of the log. The task may still become another one, and there may be none.
    fn tell_context(&self) {
        Span::current().record("context", display(&self.context_id)).record("task", display(&self.task_id));
        annex_telemetry::with(|request| request.is_about(Some(self.context_id.clone().into()), None));
    }

    /// For the lines of the log, once it is known that the message is not one that came before.
    fn tell_task(&self) {
        annex_telemetry::with(|request| request.is_about(None, Some(self.task_id.clone().into())));
    }

    /// A process has left the message, and it is worked on as the task that it was to become there.
    fn take_over(&mut self, delivery: FirstDelivery, task: TaskId) {
        self.delivery = Some(delivery);
        // The message may continue a task, which is the same then.
        if task != self.task_id {
            Span::current().record("task", display(&task));
            self.turn_task = TurnTask::new(task.clone(), self.context_id.clone());
            self.task_id = task;
        }
    }

    /// The parts of a turn on it that extensions may see.
    pub(crate) fn visible<'a>(&'a self, session: &'a TurnSession) -> VisibleTurn<'a> {
        VisibleTurn { session, task: &self.turn_task, steps: &self.steps }
    }

    /// A finished task takes no further message (A2A 1.0 section 3.4.2).
    pub(crate) fn check_open(&self) -> Result<(), A2aError> {
        match &self.record {
            Some(record) if record.is_finished() => Err(record::finished(record)),
            Some(record) if record.runs_elsewhere() => Err(record::runs_elsewhere(record.id())),
            _ => Ok(()),
        }
    }

    /// A task that is worked on takes no message. It would wait for the end of the turn, which most often ends the task.
    fn check_waits(&self) -> Result<(), A2aError> {
        match &self.record {
            // The turn of a task that waits for its client may still be ending.
            Some(record) if record.is_running() && !record.task_state().is_interrupted() => {
                Err(record::worked_on(record))
            }
            _ => Ok(()),
        }
    }

    /// A message must leave room in its task, for an answer too.
    fn check_size(&self, message: &Message, limits: &TaskLimits) -> Result<(), A2aError> {
        let Some(record) = &self.record else {
            let too_large = |excess: Excess| {
                let description = format!("is too large for any task: {excess}, of which the answer gets a part");
                A2aError::invalid_field("message", description)
            };
            return limits.check_message(&TaskSize::default(), message).map_err(too_large);
        };
        record.check_message(message).map_err(|excess| {
            let task_id = &self.task_id;
            let reason = format!(
                "with this message task {task_id} would have {excess}, of which the answer gets a part; send the \
                 message without taskId to go on in the context with a new task"
            );
            A2aError::UnsupportedOperation { reason }
        })
    }

    fn place(&self, message: &mut Message) {
        message.context_id = Some(self.context_id.clone());
        message.task_id = Some(self.task_id.clone());
    }
}

/// Waits for the turn, and tells the client of a stream when that takes long: its stream begins then.
async fn announced<T>(call: &ServiceParameters, active: &[Arc<Extension>], turn: impl Future<Output = T>) -> T {
    let Some(notice) = &call.wait_notice else { return turn.await };
    let mut turn = pin!(turn);
    if let Ok(begun) = timeout(SHORT_WAIT, &mut turn).await {
        return begun;
    }
    // A client that has gone needs no notice.
    let _ = notice.send(active.iter().map(|extension| extension.uri().clone()).collect());
    turn.await
}

/// The record of the agent's steps, which is kept where an extension may read it.
fn steps_for(active: &[Arc<Extension>]) -> Steps {
    if active.iter().any(|extension| extension.grants().agent_steps) { Steps::default() } else { Steps::unread() }
}

/// The request that the hooks see of a message.
pub(crate) fn hook_request<'a>(
    call: &'a ServiceParameters,
    operation: &'a str,
    request: &'a SendMessageRequest,
    target: &'a Target,
    view: Arc<dyn TurnView>,
) -> TurnRequest<'a> {
    TurnRequest {
        operation,
        context_id: Some(&target.context_id),
        task_id: request.message.task_id.as_ref(),
        requested: &call.requested,
        message: &request.message,
        request: &request.metadata,
        view,
        resumed: false,
    }
}
