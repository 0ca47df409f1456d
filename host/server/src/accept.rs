//! The line that every message takes: checked, negotiated, placed, validated by the extensions, stored with its state
//! delta, and given to the agent.

use std::borrow::Cow;
use std::sync::Arc;

use annex_agent::{RemoteCall, Steps, TurnContext};
use annex_protocol::{A2aError, ContextId, ExtensionUri, Message, SendMessageRequest, TaskId};
use annex_runtime::{Chain, Entered, Entry, Installed, TurnRequest, TurnServices};
use annex_session::{Event, StateDelta, TurnSession};
use annex_tasks::{Excess, MessageKey, Owner, TaskLimits, TaskSize};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::activation;
use crate::call::Call;
use crate::claim::{self, Claim, Claimed};
use crate::counters::Reception;
use crate::edition::Edition;
use crate::fault;
use crate::handler::RequestHandler;
use crate::places::Place;
use crate::readers::{TurnState, TurnTask};
use crate::request_check;
use crate::scoped_keys::session_key;
use crate::task_record::TaskRecord;
use crate::turn::{self, Opened, Opening, Running, Turn};

/// An accepted message.
pub(crate) enum Accepted {
    /// Its turn runs.
    Started(Started),
    /// It came before, and went to this task.
    Repeated(Arc<TaskRecord>),
    /// It came before, and was answered with this message.
    Answered(Box<Message>),
}

/// A message whose turn runs.
pub(crate) struct Started {
    /// What is really active, for the echo.
    pub(crate) active: Vec<ExtensionUri>,
    pub(crate) opening: Opening,
    pub(crate) running: Running,
}

/// Where a message belongs.
pub(crate) struct Target {
    context_id: ContextId,
    pub(crate) task_id: TaskId,
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// Whether the context was named here, so that nobody else can know it yet.
    is_new: bool,
    /// Whose task it is.
    owner: Owner,
    /// Held until it is settled that the message is taken.
    claim: Option<Claim>,
    /// What the extensions see of the task.
    turn_task: TurnTask,
    /// What they see of the agent.
    steps: Steps,
}

/// What a turn is made with.
pub(crate) struct TurnResources {
    pub(crate) chain: Chain,
    pub(crate) session: TurnSession,
    pub(crate) place: Place,
    /// Whether the agent is to run.
    pub(crate) entry: Entry,
    pub(crate) call: Call,
    /// What an agent that lives elsewhere is told.
    pub(crate) remote: Option<RemoteCall>,
    /// Whether an extension took the task up, rather than a message.
    pub(crate) resumed: bool,
}

impl RequestHandler {
    /// Takes a message, counts it and traces it.
    pub(crate) async fn accept(
        &self,
        call: &Call,
        operation: &'static str,
        request: SendMessageRequest,
    ) -> Result<Accepted, A2aError> {
        let span = tracing::debug_span!("request", operation, context = Empty, task = Empty, verdict = Empty);
        let accepted = self.take(call, operation, request).instrument(span.clone()).await;
        let reception = match &accepted {
            Ok(Accepted::Started(_)) => Reception::Started,
            Ok(Accepted::Repeated(_) | Accepted::Answered(_)) => Reception::Repeated,
            Err(error) => Reception::from(error),
        };
        self.counters.message(reception);
        if !span.is_disabled() {
            span.record("verdict", reception.name());
            tracing::debug!(parent: &span, "the message has been taken or refused");
        }
        accepted
    }

    /// The line that every message takes: checked, negotiated, placed, validated by the extensions, stored with its
    /// state delta, and given to the agent. Nothing is left behind when it is refused.
    async fn take(
        &self,
        call: &Call,
        operation: &'static str,
        mut request: SendMessageRequest,
    ) -> Result<Accepted, A2aError> {
        request_check::check(&request)?;
        let edition = self.editions.current();
        let installed = self.installed_for(call, &request.message, &edition);
        let active = activation::negotiate(&installed, &edition.passed_on, &call.requested)?;
        self.check_push(&request).await?;
        let mut target = self.target(&call.owner, &request.message).await?;
        Span::current().record("context", display(&target.context_id)).record("task", display(&target.task_id));
        self.input_modes.check(&request.message)?;
        match self.claim(&request, &target).await? {
            Some(Claimed::Repeated(task)) => return self.repeated(&call.owner, &task).await,
            Some(Claimed::Answered(answer)) => return Ok(Accepted::Answered(answer)),
            Some(Claimed::New(claim)) => target.claim = Some(claim),
            None => {}
        }
        target.check_open()?;
        target.check_size(&request.message, self.tasks.limits())?;
        self.check_room(&request).await?;
        let place = self.places.take(&call.owner).await?;
        let session = self.begin_turn(&call.owner, &target).await?;
        // Whoever waited may find the server leaving.
        if self.running.is_closed() {
            return Err(A2aError::Overloaded { reason: "the server is draining".to_owned() });
        }
        target.check_open()?;
        let services = self.services.of_turn(&active, &call.owner, target.of_turn(&session)).await?;
        let remote = self.remote_call(call, &edition, (&session, &target.task_id), &request).await?;
        let hooks = TurnRequest { services, ..hook_request(call, operation, &request, &target, &session) };
        let Entered { mut chain, delta, parts } = Chain::start(&active, &hooks).await.map_err(fault::of_hook)?;
        request.message.parts = parts.unwrap_or(request.message.parts);
        let mut delta = StateDelta::from(delta);
        self.agent.before_turn(&request, &session, &mut delta)?;
        target.place(&mut request.message);
        // Others have sent messages meanwhile, or an extension has rewritten this one.
        target.check_size(&request.message, self.tasks.limits())?;
        let entry = target.entry(&mut chain, false).await?;
        // What is vetoed never was said.
        if !matches!(entry, Entry::Vetoed(_)) {
            let event = user_event(&request.message, &target, delta);
            let is_first = self.agent.reaches_out()
                || target.record.is_some()
                || active.iter().any(|extension| extension.grants().reach_out());
            let said = match is_first {
                true => session.append(event).await,
                false => session.take_in(event).await,
            };
            said.map_err(|error| fault::of_session(&error))?;
        }
        let resources = TurnResources { chain, entry, session, place, call: call.clone(), remote, resumed: false };
        let started = self.start(request, target, resources).await?;
        Ok(Accepted::Started(started))
    }

    /// What is installed, with the versions that the message's task was accepted by.
    pub(crate) fn installed_for<'a>(&self, call: &Call, message: &Message, edition: &'a Edition) -> Cow<'a, Installed> {
        let pinned = message.task_id.as_ref().map(|task| self.tasks.pins().of(&call.owner, task)).unwrap_or_default();
        if pinned.is_empty() {
            return Cow::Borrowed(&edition.installed);
        }
        edition.installed.with_versions(&pinned).map_or_else(
            |error| {
                tracing::warn!(%error, "a waiting task goes on with what is installed, because its versions do not fit");
                Cow::Borrowed(&edition.installed)
            },
            Cow::Owned,
        )
    }

    /// Whether the message is new. One of an anonymous client that names neither context nor task has nothing that it
    /// could be found under: ids are all that keeps such clients apart.
    async fn claim(&self, request: &SendMessageRequest, target: &Target) -> Result<Option<Claimed>, A2aError> {
        let message = &request.message;
        let context = match (&message.context_id, &message.task_id) {
            (None, None) if target.owner.principal.is_empty() => return Ok(None),
            (None, None) => ContextId::default(),
            _ => target.context_id.clone(),
        };
        let key = MessageKey { context, message: message.message_id.clone(), digest: claim::digest(request)? };
        self.claims.claim(&target.owner, key, &target.task_id).await.map(Some)
    }

    async fn repeated(&self, owner: &Owner, task: &TaskId) -> Result<Accepted, A2aError> {
        let reason = "the message came before, and neither a task nor an answer of it is kept here; send it under a new \
                      messageId to ask again";
        match self.tasks.open(owner, task).await {
            Ok(record) => Ok(Accepted::Repeated(record)),
            Err(A2aError::TaskNotFound { .. }) => Err(A2aError::UnsupportedOperation { reason: reason.to_owned() }),
            Err(error) => Err(error),
        }
    }

    /// Finds or makes the ids of the conversation and the task (A2A 1.0 section 3.4).
    pub(crate) async fn target(&self, owner: &Owner, message: &Message) -> Result<Target, A2aError> {
        let Some(task_id) = &message.task_id else {
            let is_new = message.context_id.is_none();
            let context_id = message.context_id.clone().unwrap_or_else(ContextId::generate);
            let (task_id, owner) = (TaskId::generate(), owner.clone());
            let (turn_task, steps) = (TurnTask::new(task_id.clone(), context_id.clone()), Steps::default());
            return Ok(Target { context_id, task_id, record: None, is_new, owner, claim: None, turn_task, steps });
        };
        let record = self.tasks.open(owner, task_id).await?;
        if message.context_id.as_ref().is_some_and(|named| named != record.context_id()) {
            let description = format!("is not the context of task {task_id}; leave it out");
            return Err(A2aError::invalid_field("message.contextId", description));
        }
        Ok(Target::of_task(owner, record))
    }

    /// Waits for its turn in the context and opens the session. A new one has nothing to read, besides what it may share.
    pub(crate) async fn begin_turn(&self, owner: &Owner, target: &Target) -> Result<TurnSession, A2aError> {
        let key = session_key(Arc::clone(&self.app), owner, &target.context_id);
        let opened = async {
            let guard = self.turns.begin(&key).await?;
            if target.is_new && !self.agent.reads_shared_state() {
                return Ok(TurnSession::open_new(&self.sessions, key, guard));
            }
            TurnSession::open(&self.sessions, key, guard).await
        };
        opened.await.map_err(|error| fault::of_session(&error))
    }

    /// Begins the turn and waits for the agent's first event.
    pub(crate) async fn start(
        &self,
        request: SendMessageRequest,
        target: Target,
        resources: TurnResources,
    ) -> Result<Started, A2aError> {
        let TurnResources { chain, entry, session, place, call, remote, resumed } = resources;
        let cancel = CancellationToken::new();
        let context = TurnContext {
            task_id: target.task_id,
            context_id: target.context_id,
            message: Arc::new(request.message),
            metadata: Arc::new(request.metadata),
            session,
            steps: target.steps,
            cancel,
            remote: remote.map(Arc::new),
        };
        let push_config = request.configuration.task_push_notification_config;
        let (opened, opening) = oneshot::channel();
        let (agent, tasks, record) = (Arc::clone(&self.agent), Arc::clone(&self.tasks), target.record);
        let continues = record.is_some();
        let turn = Turn {
            agent,
            tasks,
            owner: target.owner,
            claim: target.claim,
            _place: place,
            chain,
            entry: Some(entry),
            requested: call.requested,
            resumed,
            context,
            record,
            turn_task: target.turn_task,
            state: None,
            pending: Vec::new(),
            opened: Some(opened),
            patience: self.max_turn,
            stop: self.stop.clone(),
            running: self.running.clone(),
            counters: Arc::clone(&self.counters),
        };
        let running = turn.begin_running();
        let Opened { opening, active } = opening.await.map_err(|gone| fault::internal(&gone))??;
        if let (Opening::Task { snapshot, reader: Some(reader), .. }, Some(push)) = (&opening, &self.push) {
            match push_config {
                Some(config) => drop(push.put(snapshot.id(), config, Some(reader.clone())).await?),
                None if continues => push.forward(snapshot.id(), reader.clone()).await?,
                None => {}
            }
        }
        Ok(Started { active, opening, running })
    }
}

impl Target {
    /// A task that is there already.
    pub(crate) fn of_task(owner: &Owner, record: Arc<TaskRecord>) -> Self {
        let (task_id, context_id, owner) = (record.id().clone(), record.context_id().clone(), owner.clone());
        let (turn_task, steps) = (TurnTask::new(task_id.clone(), context_id.clone()), Steps::default());
        let snapshot = record.snapshot();
        turn_task.show(snapshot.state(), snapshot.status_at());
        Self { context_id, task_id, record: Some(record), is_new: false, owner, claim: None, turn_task, steps }
    }

    /// What the services of a turn are made for.
    pub(crate) fn of_turn<'a>(&'a self, session: &'a TurnSession) -> (&'a TurnSession, &'a TaskId, &'a Steps) {
        (session, &self.task_id, &self.steps)
    }

    /// Asks the extensions whether the agent is to run.
    pub(crate) async fn entry(&self, chain: &mut Chain, resumed: bool) -> Result<Entry, A2aError> {
        let waits_in = self.record.as_ref().map(|record| record.task_state());
        let entry = chain.begin(&self.task_id, &self.context_id, waits_in, resumed).await;
        entry.map_err(|fault| fault::of_hook(fault.into()))
    }

    /// A finished task takes no further message (A2A 1.0 section 3.4.2).
    pub(crate) fn check_open(&self) -> Result<(), A2aError> {
        match &self.record {
            Some(record) if record.is_finished() => Err(turn::finished(record)),
            Some(record) if record.runs_elsewhere() => Err(runs_elsewhere(record.id())),
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

pub(crate) fn runs_elsewhere(task_id: &TaskId) -> A2aError {
    let reason = format!("task {task_id} runs in another process of this server; use GetTask to follow it");
    A2aError::UnsupportedOperation { reason }
}

/// What the hooks see of a message.
pub(crate) fn hook_request<'a>(
    call: &'a Call,
    operation: &'a str,
    request: &'a SendMessageRequest,
    target: &'a Target,
    session: &TurnSession,
) -> TurnRequest<'a> {
    TurnRequest {
        operation,
        context_id: Some(&target.context_id),
        task_id: request.message.task_id.as_ref(),
        requested: &call.requested,
        message: &request.message,
        request: &request.metadata,
        session: Arc::new(TurnState(session.clone())),
        task: Arc::new(target.turn_task.clone()),
        services: TurnServices::default(),
        resumed: false,
    }
}

fn user_event(message: &Message, target: &Target, delta: StateDelta) -> Event {
    Event::of_user(target.task_id.clone(), message.parts.clone(), delta)
}
