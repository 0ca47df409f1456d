//! What the operations do, whichever binding they came by.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use annex_agent::{AgentExecutor, Steps, TurnContext};
use annex_auth::{AuthError, Authenticator};
use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, ContextId, ExtensionUri, GetExtendedAgentCardRequest, GetTaskRequest,
    ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task,
    TaskId,
};
use annex_runtime::{Chain, Installed, TurnRequest, TurnServices};
use annex_session::{Event, InMemorySessionService, StateDelta, TurnSession, Turns, USER_AUTHOR};
use annex_tasks::{MessageKey, Owner};
use axum::http::HeaderMap;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::activation;
use crate::answer::{self, Answer, EventStream, Sent, ShownTask, Until};
use crate::call::Call;
use crate::claim::{self, Claim, Claimed, Claims};
use crate::counters::{Counters, Reception};
use crate::edition::{Edition, Editions};
use crate::fault;
use crate::input_modes::InputModes;
use crate::list;
use crate::places::{Place, Places};
use crate::push::PushNotifications;
use crate::readers::{TurnState, TurnTask};
use crate::request_check::{self, check_tenant};
use crate::scoped_keys::session_key;
use crate::services::Services;
use crate::task_log::LoggedEvent;
use crate::task_record::TaskRecord;
use crate::tasks::Tasks;
use crate::turn::{self, Opened, Opening, Turn};

/// The A2A operations over the agent, its sessions and its tasks.
pub(crate) struct RequestHandler {
    pub(crate) editions: Arc<Editions>,
    pub(crate) agent: Arc<dyn AgentExecutor>,
    /// Says who calls; `None` lets everybody in.
    pub(crate) authenticator: Option<Authenticator>,
    pub(crate) input_modes: InputModes,
    /// `None` when the config has no `[push]`.
    pub(crate) push: Option<Arc<PushNotifications>>,
    /// Whether clients of A2A 0.3 are served too.
    pub(crate) speaks_v0_3: bool,
    pub(crate) sessions: Arc<InMemorySessionService>,
    pub(crate) turns: Turns,
    pub(crate) tasks: Arc<Tasks>,
    /// What extensions get besides session and task.
    pub(crate) services: Services,
    /// Messages that are being looked at.
    pub(crate) claims: Arc<Claims>,
    /// How many turns there may be.
    pub(crate) places: Arc<Places>,
    /// The longest that one turn may take.
    pub(crate) max_turn: Duration,
    /// The running turns.
    pub(crate) running: TaskTracker,
    /// How messages were taken and how turns ended.
    pub(crate) counters: Arc<Counters>,
    /// Fires when running turns must end.
    pub(crate) stop: CancellationToken,
    /// Fires when streams must end, whatever their tasks do.
    pub(crate) closing: CancellationToken,
}

/// An accepted message.
enum Accepted {
    /// Its turn runs.
    Started(Started),
    /// It came before, and went to this task.
    Repeated(Arc<TaskRecord>),
    /// It came before, and was answered with this message.
    Answered(Box<Message>),
}

/// A message whose turn runs.
struct Started {
    /// What is really active, for the echo.
    active: Vec<ExtensionUri>,
    opening: Opening,
    /// Resolves when the turn is over, to what was active to the end; an error when that end could not be stored.
    finished: JoinHandle<Result<Vec<ExtensionUri>, A2aError>>,
}

/// Where a message belongs.
struct Target {
    context_id: ContextId,
    task_id: TaskId,
    record: Option<Arc<TaskRecord>>,
    /// Whose task it is.
    owner: Owner,
    /// Held until it is settled that the message is taken.
    claim: Option<Claim>,
    /// What the extensions see of the task.
    turn_task: TurnTask,
    /// What they see of the agent.
    steps: Steps,
}

impl RequestHandler {
    /// Who calls (A2A 1.0 section 7.4).
    pub(crate) async fn identify(&self, headers: &HeaderMap) -> Result<Owner, A2aError> {
        let Some(authenticator) = &self.authenticator else { return Ok(Owner::default()) };
        match authenticator.authenticate(headers).await {
            Ok(principal) => Ok(Owner { tenant: String::new(), principal: principal.id }),
            Err(AuthError::Unavailable) => {
                Err(A2aError::Overloaded { reason: "the identity provider is unavailable".to_owned() })
            }
            Err(error) => {
                let challenge = error.www_authenticate().and_then(|value| value.to_str().ok()).unwrap_or_default();
                Err(A2aError::Unauthenticated { reason: error.to_string(), challenge: challenge.to_owned() })
            }
        }
    }

    /// Waits for the turn to end or be interrupted, unless the client wants the task at once.
    pub(crate) async fn send_message(
        &self,
        call: &Call,
        request: SendMessageRequest,
    ) -> Result<Answer<Sent>, A2aError> {
        let configuration = &request.configuration;
        let (at_once, history_length) = (configuration.return_immediately, configuration.history_length);
        let shown = |task| Sent::Task(ShownTask::trimmed(task, history_length));
        let Started { mut active, opening, finished } = match self.accept(call, "SendMessage", request).await? {
            Accepted::Started(started) => started,
            Accepted::Answered(message) => return Ok(Answer { value: Sent::Message(message), active: Vec::new() }),
            Accepted::Repeated(record) => {
                if !at_once {
                    record.turn_over().await;
                }
                return Ok(Answer { value: shown(record.snapshot()), active: Vec::new() });
            }
        };
        let value = match opening {
            Opening::Message(message) => Sent::Message(message),
            Opening::Task { snapshot, .. } if at_once => shown(snapshot),
            Opening::Task { record, .. } => {
                active = finished.await.map_err(|error| fault::internal(&error))??;
                shown(record.snapshot())
            }
        };
        Ok(Answer { value, active })
    }

    /// The task or the message, and what follows to the end of the turn.
    pub(crate) async fn send_streaming_message(
        &self,
        call: &Call,
        request: SendMessageRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        let task = |task| StreamResponse::Task(Arc::unwrap_or_clone(task));
        let (first, reader, active) = match self.accept(call, "SendStreamingMessage", request).await? {
            Accepted::Started(Started { active, opening, .. }) => match opening {
                Opening::Message(message) => (StreamResponse::Message(*message), None, active),
                Opening::Task { snapshot, reader, .. } => (task(snapshot), reader, active),
            },
            Accepted::Answered(message) => (StreamResponse::Message(*message), None, Vec::new()),
            Accepted::Repeated(record) => {
                let (snapshot, reader) = record.subscribe_to_turn();
                (task(snapshot), reader, Vec::new())
            }
        };
        let value = answer::events(LoggedEvent::new(Arc::new(first)), reader, self.closing.clone(), Until::TurnEnds);
        Ok(Answer { value, active })
    }

    /// Whoever gets here has been authenticated: without `[auth]` there is no extended card.
    pub(crate) fn get_extended_agent_card(
        &self,
        request: &GetExtendedAgentCardRequest,
    ) -> Result<Arc<AgentCard>, A2aError> {
        check_tenant(request.tenant.as_deref())?;
        let reason = "this agent has no extended card; the public one is all there is".to_owned();
        let edition = self.editions.current();
        edition.extended_card.clone().ok_or(A2aError::UnsupportedOperation { reason })
    }

    /// Takes a message, counts it and traces it.
    async fn accept(
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
        let active = activation::negotiate(&installed, &call.requested)?;
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
        self.check_room(&request).await?;
        let place = self.places.take(&call.owner)?;
        let session = self.begin_turn(&call.owner, &target).await?;
        // Whoever waited may find the server leaving.
        if self.running.is_closed() {
            return Err(A2aError::Overloaded { reason: "the server is draining".to_owned() });
        }
        target.check_open()?;
        let of_turn = (&session, &target.task_id, &target.steps);
        let services = self.services.of_turn(&active, &call.owner, of_turn).await?;
        let hooks = TurnRequest { services, ..hook_request(call, operation, &request, &target, &session) };
        let (chain, delta) = Chain::start(&active, &hooks).await.map_err(fault::of_hook)?;
        let mut delta = StateDelta::from(delta);
        self.agent.before_turn(&request, &session, &mut delta)?;
        target.place(&mut request.message);
        session.append(user_event(&request.message, &target, delta)).map_err(|error| fault::of_session(&error))?;
        let started = self.start(chain, request, target, (session, place)).await?;
        Ok(Accepted::Started(started))
    }

    /// What is installed, with the versions that the message's task was accepted by.
    fn installed_for<'a>(&self, call: &Call, message: &Message, edition: &'a Edition) -> Cow<'a, Installed> {
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
    async fn target(&self, owner: &Owner, message: &Message) -> Result<Target, A2aError> {
        let Some(task_id) = &message.task_id else {
            let context_id = message.context_id.clone().unwrap_or_else(ContextId::generate);
            let (task_id, owner) = (TaskId::generate(), owner.clone());
            let (turn_task, steps) = (TurnTask::new(task_id.clone(), context_id.clone()), Steps::default());
            return Ok(Target { context_id, task_id, record: None, owner, claim: None, turn_task, steps });
        };
        let record = self.tasks.open(owner, task_id).await?;
        let context_id = record.context_id().clone();
        if message.context_id.as_ref().is_some_and(|named| *named != context_id) {
            let description = format!("is not the context of task {task_id}; leave it out");
            return Err(A2aError::invalid_field("message.contextId", description));
        }
        let (task_id, owner) = (task_id.clone(), owner.clone());
        let (turn_task, steps) = (TurnTask::new(task_id.clone(), context_id.clone()), Steps::default());
        turn_task.show(&record.snapshot().status);
        Ok(Target { context_id, task_id, record: Some(record), owner, claim: None, turn_task, steps })
    }

    /// Waits for its turn in the context and opens the session.
    async fn begin_turn(&self, owner: &Owner, target: &Target) -> Result<TurnSession, A2aError> {
        let key = session_key(self.agent.name(), &owner.principal, &target.context_id);
        let guard = self.turns.begin(&key).await.map_err(|error| fault::of_session(&error))?;
        Ok(self.sessions.open(key, guard))
    }

    /// Runs the turn in a task of its own and waits for the agent's first event.
    async fn start(
        &self,
        chain: Chain,
        request: SendMessageRequest,
        target: Target,
        (session, place): (TurnSession, Place),
    ) -> Result<Started, A2aError> {
        let cancel = CancellationToken::new();
        let context = TurnContext {
            task_id: target.task_id,
            context_id: target.context_id,
            message: Arc::new(request.message),
            metadata: Arc::new(request.metadata),
            session,
            steps: target.steps,
            cancel,
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
        let finished = self.running.spawn(turn.run().instrument(Span::current()));
        let Opened { opening, active } = opening.await.map_err(|gone| fault::internal(&gone))??;
        if let (Opening::Task { snapshot, reader: Some(reader), .. }, Some(push)) = (&opening, &self.push) {
            match push_config {
                Some(config) => drop(push.put(&snapshot.id, config, Some(reader.clone())).await?),
                None if continues => push.forward(&snapshot.id, reader.clone()).await?,
                None => {}
            }
        }
        Ok(Started { active, opening, finished })
    }

    pub(crate) async fn get_task(&self, call: &Call, request: &GetTaskRequest) -> Result<ShownTask, A2aError> {
        check_tenant(request.tenant.as_deref())?;
        list::check_history_length(request.history_length)?;
        ShownTask::stored(self.tasks.load(&call.owner, &request.id).await?, request.history_length)
    }

    pub(crate) async fn list_tasks(
        &self,
        call: &Call,
        request: &ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aError> {
        self.services.lister.list(&call.owner, request).await
    }

    /// Stops the turn and returns the task in its final state.
    pub(crate) async fn cancel_task(&self, call: &Call, request: &CancelTaskRequest) -> Result<Task, A2aError> {
        check_tenant(request.tenant.as_deref())?;
        let record = self.tasks.open(&call.owner, &request.id).await?;
        if record.is_finished() {
            return Err(A2aError::TaskNotCancelable { task_id: request.id.clone(), state: record.task_state() });
        }
        record.cancel().await.map_err(fault::of_store)?;
        self.tasks.leave_if_finished(&record);
        match record.is_finished() {
            true => Ok(Arc::unwrap_or_clone(record.snapshot())),
            false => Err(turn::finished(&record)),
        }
    }

    /// The task as it is now and all that follows, over as many turns as it takes.
    pub(crate) async fn subscribe_to_task(
        &self,
        call: &Call,
        request: &SubscribeToTaskRequest,
    ) -> Result<EventStream, A2aError> {
        self.follow(call, request, Until::TaskEnds).await
    }

    /// The task as it is now and what follows to the end of the turn, as clients of 0.3 expect it.
    pub(crate) async fn follow_turn(
        &self,
        call: &Call,
        request: &SubscribeToTaskRequest,
    ) -> Result<EventStream, A2aError> {
        self.follow(call, request, Until::TurnEnds).await
    }

    async fn follow(
        &self,
        call: &Call,
        request: &SubscribeToTaskRequest,
        until: Until,
    ) -> Result<EventStream, A2aError> {
        check_tenant(request.tenant.as_deref())?;
        let record = self.tasks.open(&call.owner, &request.id).await?;
        if record.runs_elsewhere() {
            return Err(runs_elsewhere(&request.id));
        }
        let (snapshot, Some(reader)) = record.subscribe() else {
            return Err(A2aError::UnsupportedOperation {
                reason: format!("task {} is finished; use GetTask to read it", request.id),
            });
        };
        let first = LoggedEvent::new(Arc::new(StreamResponse::Task(Arc::unwrap_or_clone(snapshot))));
        Ok(answer::events(first, Some(reader), self.closing.clone(), until))
    }
}

impl Target {
    /// A finished task takes no further message (A2A 1.0 section 3.4.2).
    fn check_open(&self) -> Result<(), A2aError> {
        match &self.record {
            Some(record) if record.is_finished() => Err(turn::finished(record)),
            Some(record) if record.runs_elsewhere() => Err(runs_elsewhere(record.id())),
            _ => Ok(()),
        }
    }

    fn place(&self, message: &mut Message) {
        message.context_id = Some(self.context_id.clone());
        message.task_id = Some(self.task_id.clone());
    }
}

fn runs_elsewhere(task_id: &TaskId) -> A2aError {
    let reason = format!("task {task_id} runs in another process of this server; use GetTask to follow it");
    A2aError::UnsupportedOperation { reason }
}

fn hook_request<'a>(
    call: &'a Call,
    operation: &'static str,
    request: &'a SendMessageRequest,
    target: &'a Target,
    session: &TurnSession,
) -> TurnRequest<'a> {
    TurnRequest {
        operation,
        context_id: Some(&target.context_id),
        task_id: request.message.task_id.as_ref(),
        requested: &call.requested,
        message: &request.message.metadata,
        request: &request.metadata,
        session: Arc::new(TurnState(session.clone())),
        task: Arc::new(target.turn_task.clone()),
        services: TurnServices::default(),
    }
}

fn user_event(message: &Message, target: &Target, delta: StateDelta) -> Event {
    Event::new(USER_AUTHOR, target.task_id.as_str(), message.parts.clone(), delta)
}
