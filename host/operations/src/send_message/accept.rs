//! Accepting a message: checks, negotiation of extensions, the ids of conversation and task, and the start of the turn.

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

/// After this wait for the previous turn the stream of a message is opened. Most messages wait only for the store,
/// which is faster.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The conversation and the task of a message.
pub(crate) struct Target {
    pub(crate) context_id: ContextId,
    pub(crate) task_id: TaskId,
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// True if this server has just made the context id. No other client can know such a context.
    is_new: bool,
    /// The owner of the task.
    pub(crate) owner: Owner,
    /// The replica id of this process when the message arrived. `None` if only one process can use the store.
    pub(crate) replica: Option<Replica>,
    /// The claim on the message. Held until the message is accepted.
    delivery: Option<FirstDelivery>,
    /// The task as extensions see it.
    turn_task: TurnTask,
    /// The recorded steps of the agent, which extensions may read.
    steps: Steps,
}

/// The parts of a turn.
pub(crate) struct TurnResources {
    pub(crate) chain: Chain,
    pub(crate) session: TurnSession,
    pub(crate) permit: TurnPermit,
    /// The user's message for the session. `None` if an extension resumes the task, because there is no new message
    /// then.
    pub(crate) user_event: Option<Box<UserEvent>>,
    /// The call. Its `requested` URIs find the turn's extensions if the turn is made again.
    pub(crate) call: ServiceParameters,
    /// The context for a remote agent. `None` for a local agent.
    pub(crate) remote: Option<UpstreamContext>,
    /// Makes a draining server wait until the turn itself is counted.
    pub(crate) counted: TaskTrackerToken,
    /// True if the client reads the events as they are stored.
    pub(crate) streams: bool,
}

impl RequestHandler {
    /// Accepts a message, and adds the outcome to the counters and the trace.
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

    /// Accepts a message: checks the request, negotiates extensions, claims the message, waits for the conversation,
    /// asks the extensions, and starts a turn. A refused message leaves nothing behind. There is one exception: if the
    /// push config of a message whose turn has begun cannot be stored, the client gets an error and the task continues.
    async fn take(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        mut request: SendMessageRequest,
    ) -> Result<(Reception, Outcome), A2aError> {
        request_check::check(&request)?;
        // This check needs no query, so it comes before those of the store.
        self.check_work()?;
        // One set is used for the whole request, so that a concurrent change is seen as a whole or not at all.
        let extensions = self.extensions.current()?;
        let record = self.record_of(&call.owner, &request.message).await;
        let pinned = match &record {
            Ok(Some(record)) => self.tasks.pinned(record).await.map_err(fault::of_store)?,
            // `record?` below returns the error.
            Ok(None) | Err(_) => Vec::new(),
        };
        let installed = installed_with(&pinned, &extensions);
        // Negotiated before any task, session or guest exists, so that a client without a required extension leaves
        // nothing behind.
        let active = activation::negotiate(&installed, &extensions.passed_on, &Occasion::message(call, &request))?;
        self.catch_up_with(call, &record).await;
        self.check_push(&request).await?;
        let mut target = Target::new(&call.owner, &request.message, record?, self.counted(steps_for(&active)))?;
        self.input_modes.check(&request.message)?;
        // A named context may already have a session. That is known once the session is read.
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
        // Checked after the claim: a repetition gets its task even if the task is finished by now.
        target.check_open()?;
        target.check_waits()?;
        target.check_size(&request.message, &self.tasks.limits())?;
        self.check_room(&request).await?;
        // The permit comes before the wait for the conversation, so that waiting turns are limited as well.
        let permit = self.turn_limiter.take(&call.owner).await?;
        let session = announced(call, &active, self.begin_turn(&call.owner, &target)).await?;
        if !target.is_new && !session.exists() {
            self.check_new_session()?;
        }
        // The message counts as a turn from here on, so a draining server waits for it.
        let counted = self.running.token();
        self.check_begins()?;
        // The previous turn of the conversation may have ended the task.
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
        // The ids are set after the hooks, because a task id tells a hook that the message continues a task.
        target.place(&mut request.message);
        // Checked again: other messages may have joined the task, or an extension may have rewritten this one.
        target.check_size(&request.message, &self.tasks.limits())?;
        let id = deduplication::event_id(&target.task_id, &request.message.message_id);
        let event = Event { id, ..Event::of_user(target.task_id.clone(), request.message.parts.clone(), delta) };
        let user_event = Some(Box::new(UserEvent { event, following: self.following(&target, &active) }));
        let streams = operation == STREAMING;
        let call = activation::to_ask_again(call.clone(), &extensions.passed_on, &active);
        let resources = TurnResources { chain, user_event, session, permit, call, remote, counted, streams };
        Ok((Reception::Started, self.start(request, target, resources).await?))
    }

    /// The task that the message names, if any.
    async fn record_of(&self, owner: &Owner, message: &Message) -> Result<Option<Arc<TaskRecord>>, A2aError> {
        let Some(task_id) = &message.task_id else { return Ok(None) };
        self.tasks.open(owner, task_id).await.map(Some)
    }

    /// Brings a waiting task up to date with its remote agent.
    async fn catch_up_with(&self, call: &ServiceParameters, record: &Result<Option<Arc<TaskRecord>>, A2aError>) {
        if let Ok(Some(record)) = record {
            self.catch_up_now(call, record).await;
        }
    }

    /// Waits for the conversation and opens its session. A new conversation has no session to read, except for shared
    /// state.
    pub(crate) async fn begin_turn(&self, owner: &Owner, target: &Target) -> Result<TurnSession, A2aError> {
        let key = session_key(Arc::clone(&self.app), owner, &target.context_id);
        // The place is taken before the wait: a process that loses its lease during the wait must not begin the turn
        // under the next lease.
        let beginning = Beginning { place: self.sessions.place(), history: self.agent.reads_history() };
        let opened = async {
            if !target.is_new {
                return TurnSession::open(&self.sessions, key, &self.turns, beginning).await;
            }
            // No other client knows a new context, so there is no session to read and no turn to wait for.
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

    /// Decides how the user's message is stored: before any effect of the turn, or together with the answer.
    fn following(&self, target: &Target, active: &[Arc<Extension>]) -> Following {
        // Readers of the task see a message that joins it. After a crash the session must have that message as well.
        let is_read_by_others = target.record.is_some();
        let extensions_reach_out = active.iter().any(|extension| extension.grants().reach_out());
        if is_read_by_others || extensions_reach_out || self.agent.reaches_out() {
            Following::Effects
        } else {
            Following::Answer
        }
    }

    /// Starts the turn and waits for the agent's first event.
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
        // The turn is now counted by itself.
        drop(counted);
        let mut outcome = outcome.await.map_err(|gone| fault::internal(&gone))??;
        if let Outcome::Task(task) = &mut outcome {
            task.running = Some(running);
            self.notify(task, &call, push_config, continues).await?;
        }
        Ok(outcome)
    }

    /// Starts the push notifications for the events of the task.
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
            // A new task has no other configs. A later registration brings its own reader.
            None => Ok(()),
        }
    }
}

/// The installed extensions, with the versions that the task has pinned in place of newer ones. The current settings
/// decide for which requests each extension is active.
pub(crate) fn installed_with<'a>(pinned: &[Arc<Extension>], extensions: &'a ExtensionSet) -> Cow<'a, Installed> {
    if pinned.is_empty() {
        return Cow::Borrowed(&extensions.installed);
    }
    extensions.installed.with_versions(pinned).map_or_else(
        |error| {
            tracing::warn!(target: crate::LOG_TARGET, %error, "a waiting task continues with the installed versions, because its pinned versions do not fit together");
            Cow::Borrowed(&extensions.installed)
        },
        Cow::Owned,
    )
}

impl Target {
    /// Determines the ids of the conversation and the task (A2A 1.0 section 3.4) and adds them to the log. `record`
    /// belongs to the task that the message names.
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

    /// The target for an existing task.
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

    /// Adds the ids to the log lines of the request. The message may still get another task, or none.
    fn tell_context(&self) {
        Span::current().record("context", display(&self.context_id)).record("task", display(&self.task_id));
        annex_telemetry::with(|request| request.is_about(Some(self.context_id.clone().into()), None));
    }

    /// Adds the task to the request's log line. Called once the message is known to be new.
    fn tell_task(&self) {
        annex_telemetry::with(|request| request.is_about(None, Some(self.task_id.clone().into())));
    }

    /// Takes over a message of another process, with the task id that was chosen there.
    fn take_over(&mut self, delivery: FirstDelivery, task: TaskId) {
        self.delivery = Some(delivery);
        // A message that continues a task has the same task id in both processes.
        if task != self.task_id {
            Span::current().record("task", display(&task));
            self.turn_task = TurnTask::new(task.clone(), self.context_id.clone());
            self.task_id = task;
        }
    }

    /// The parts of the turn that extensions may see.
    pub(crate) fn visible<'a>(&'a self, session: &'a TurnSession) -> VisibleTurn<'a> {
        VisibleTurn { session, task: &self.turn_task, steps: &self.steps }
    }

    /// Checks that the task is not finished (A2A 1.0 section 3.4.2).
    pub(crate) fn check_open(&self) -> Result<(), A2aError> {
        match &self.record {
            Some(record) if record.is_finished() => Err(record::finished(record)),
            Some(record) if record.runs_elsewhere() => Err(record::runs_elsewhere(record.id())),
            _ => Ok(()),
        }
    }

    /// Checks that no turn works on the task. The message would wait for that turn, which usually finishes the task.
    fn check_waits(&self) -> Result<(), A2aError> {
        match &self.record {
            // The task already waits for its client, and its turn is just ending.
            Some(record) if record.is_running() && !record.task_state().is_interrupted() => {
                Err(record::worked_on(record))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the message leaves room in its task for an answer.
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

/// Waits for the previous turn. If that takes long, sends the notice that opens the stream of the client.
async fn announced<T>(call: &ServiceParameters, active: &[Arc<Extension>], turn: impl Future<Output = T>) -> T {
    let Some(notice) = &call.wait_notice else { return turn.await };
    let mut turn = pin!(turn);
    if let Ok(begun) = timeout(SHORT_WAIT, &mut turn).await {
        return begun;
    }
    // A client that has hung up needs no notice.
    let _ = notice.send(active.iter().map(|extension| extension.uri().clone()).collect());
    turn.await
}

/// The record of the agent's steps. Kept only if an active extension may read it.
fn steps_for(active: &[Arc<Extension>]) -> Steps {
    if active.iter().any(|extension| extension.grants().agent_steps) { Steps::default() } else { Steps::unread() }
}

/// The request as the hooks see it.
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
