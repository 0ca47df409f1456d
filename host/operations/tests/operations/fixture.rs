//! A handler over stores in memory, with a scripted agent, and short ways to call it.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use annex_conversation::{
    ConversationStore, Keep, Limits, MemoryBounds, MemoryStore, Retention, SqliteStore, Store, TaskLimits,
    WaitingBounds,
};
use annex_egress::{Resolver, Screen, ScreenConfig};
use annex_leases::wake::LocalWake;
use annex_operations::answer::{EventStream, Sent};
use annex_operations::claims::Claims;
use annex_operations::counters::Counters;
use annex_operations::extension_set::{ExtendedCard, ExtensionSet, ExtensionSets};
use annex_operations::on_lost_turn::OnLostTurn;
use annex_operations::operation::{Operation, OperationResult};
use annex_operations::permits::shared::SharedPlaces;
use annex_operations::permits::{TurnBounds, TurnLimiter};
use annex_operations::process::Process;
use annex_operations::process_parts::ProcessParts;
use annex_operations::push::PushNotifications;
use annex_operations::quota::{Quotas, Stores, TenantQuota};
use annex_operations::receipts::Receipts;
use annex_operations::request_handler::RequestHandler;
use annex_operations::send_message::input_modes::InputModes;
use annex_operations::service_parameters::ServiceParameters;
use annex_operations::tasks::list::Lister;
use annex_operations::tasks::pins::Pins;
use annex_operations::tasks::{TaskBounds, Tasks};
use annex_operations::views::ExtensionViews;
use annex_operations::views::agent_names::AgentNames;
use annex_operations::views::scoped_keys::ScopedKeys;
use annex_protocol::{
    A2aError, AgentCard, AgentExtension, CancelTaskRequest, ContextId, ExtensionUri, GetTaskRequest, ListTasksRequest,
    Message, MessageId, Owner, SendMessageRequest, SubscribeToTaskRequest, Task, TaskId, Timestamp,
};
use annex_push::{Notifier, NotifierConfig};
use annex_runtime::{Installed, KeyValueStore, MemoryKeyValueStore};
use annex_tenants::TenantStores;
use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::in_words::rest;

/// What differs between handlers. The defaults leave room for everything.
pub(crate) struct Settings {
    pub(crate) turns: TurnBounds,
    pub(crate) limits: TaskLimits,
    pub(crate) store: MemoryBounds,
    pub(crate) quota: Option<TenantQuota>,
    pub(crate) input_modes: Vec<String>,
    pub(crate) has_push: bool,
    /// The extensions that a remote agent declares.
    pub(crate) passed_on: Vec<AgentExtension>,
    pub(crate) extended_card: Option<AgentCard>,
    pub(crate) shows_all_anonymous: bool,
    pub(crate) on_lost_turn: OnLostTurn,
    pub(crate) agent_is_remote: bool,
    pub(crate) receipts: Option<Arc<Receipts>>,
}

impl Default for Settings {
    fn default() -> Self {
        let waiting = WaitingBounds { age: Duration::MAX, per_owner: 1_000, anonymous: 1_000 };
        Self {
            turns: TurnBounds { in_all: 100, per_caller: 100, waiting: 100, longest: Duration::from_secs(600) },
            limits: TaskLimits { bytes: 1 << 20, messages: 100, artifacts: 100 },
            store: MemoryBounds { max_tasks: 1_000, max_task_bytes: 64 << 20, waiting, ..MemoryBounds::default() },
            quota: None,
            input_modes: vec!["text/plain".to_owned()],
            has_push: false,
            passed_on: Vec::new(),
            extended_card: None,
            shows_all_anonymous: false,
            on_lost_turn: OnLostTurn::Fail,
            agent_is_remote: false,
            receipts: None,
        }
    }
}

/// A handler and its agent.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) handler: Arc<RequestHandler>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) store: Arc<dyn Store>,
}

/// A handler with the default settings.
pub(crate) async fn door() -> Door {
    door_with(Settings::default()).await
}

/// Notifications for tests. Each event is too long to be sent, so no test opens a socket.
fn notifications(store: &Arc<dyn Store>, process: &Process, closing: &CancellationToken) -> Arc<PushNotifications> {
    let screen = Screen::with_resolver(ScreenConfig::default(), Arc::new(NoNames));
    let config = NotifierConfig { max_body: 0, ..NotifierConfig::new(screen) };
    let notifier = Notifier::new(&config).expect("a notifier");
    Arc::new(PushNotifications::new(notifier, (Arc::clone(store), process.clone()), closing.clone()))
}

/// A handler with these settings.
pub(crate) async fn door_with(settings: Settings) -> Door {
    let store = Arc::new(MemoryStore::new(settings.store));
    door_on(store, Process::with_memory(), settings).await
}

/// A handler with the default settings over a file.
pub(crate) async fn door_in_file(file: &Path) -> Door {
    door_in_file_with(file, Settings::default()).await
}

/// A handler with these settings over a file.
pub(crate) async fn door_in_file_with(file: &Path, settings: Settings) -> Door {
    let process = Process::with_file("one".into());
    let store = SqliteStore::open(file, Some(&process.replica()), Limits::default()).await.expect("a file");
    door_on(Arc::new(store), process, settings).await
}

/// Completes a card that is not signed.
fn unsigned(card: AgentCard) -> Result<AgentCard, String> {
    Ok(card)
}

fn extended_card(card: AgentCard) -> ExtendedCard {
    ExtendedCard { card: Arc::new(card), complete: Arc::new(unsigned) }
}

/// A handler over this store, which handlers can share.
pub(crate) async fn door_on(store: Arc<dyn Store>, process: Process, settings: Settings) -> Door {
    let agent = Arc::new(Agent::new());
    let conversations: Arc<dyn ConversationStore> = store.clone();
    let keys: Arc<dyn KeyValueStore> = Arc::new(MemoryKeyValueStore::default());
    let places = SharedPlaces::new(None);
    places.look().await.expect("a store that answers");
    let usage = TenantStores::in_memory().usage;
    let stores = Stores { conversations: Arc::clone(&store), keys: Arc::clone(&keys), usage };
    let quotas = Quotas::new(stores, Arc::clone(&places));
    let used = match settings.quota {
        Some(quota) => Some(quotas.begin(quotas.ledger("tenant"), quota).await),
        None => None,
    };
    let closing = CancellationToken::new();
    let push = settings.has_push.then(|| notifications(&store, &process, &closing));
    let bounds = TaskBounds {
        limits: settings.limits,
        retention: Retention { conversations: Keep::ALL, tasks: Keep::ALL, waiting: settings.store.waiting },
    };
    let wake = Arc::new(LocalWake);
    let scoped_keys = ScopedKeys::new(keys, Arc::clone(&conversations), AgentNames::default());
    let lister = Lister { store: Arc::clone(&conversations), shows_all_anonymous: settings.shows_all_anonymous };
    let set = ExtensionSet {
        number: 1,
        installed: Installed::default(),
        passed_on: settings.passed_on,
        extended_card: settings.extended_card.map(extended_card),
    };
    let executor = Arc::clone(&agent);
    let process = Arc::new(ProcessParts {
        tasks: Tasks::new((Arc::clone(&conversations), process), Arc::new(Pins::default()), bounds, wake.clone()),
        views: ExtensionViews { keys: scoped_keys, lister },
        claims: Claims::new(conversations, wake),
        places: Arc::clone(&places),
        quotas,
        push,
        counters: Counters::default(),
        tracer: None,
        running: TaskTracker::new(),
        draining: CancellationToken::new(),
        stop: CancellationToken::new(),
        closing,
    });
    let handler = Arc::new_cyclic(|me| RequestHandler {
        me: Weak::clone(me),
        process,
        extensions: ExtensionSets::new(Arc::new(set)),
        app: crate::agent::NAME.into(),
        agent: executor,
        agent_is_remote: settings.agent_is_remote,
        forgotten_keys: Vec::new(),
        on_lost_turn: settings.on_lost_turn,
        input_modes: InputModes::new(&settings.input_modes),
        turn_limiter: TurnLimiter::new(settings.turns, used.clone(), places),
        used,
        receipts: settings.receipts,
        removed: AtomicBool::new(false),
    });
    Door { handler, agent, store }
}

/// A resolver that knows no name.
struct NoNames;

#[async_trait]
impl Resolver for NoNames {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other(format!("{host} is unknown")))
    }
}

/// A message on its way to the handler.
#[derive(Clone)]
pub(crate) struct Said {
    pub(crate) call: ServiceParameters,
    pub(crate) request: SendMessageRequest,
}

/// A message of an anonymous client.
pub(crate) fn say(text: &str) -> Said {
    let request = SendMessageRequest { message: Message::user_text(text), ..SendMessageRequest::default() };
    Said { call: anonymous(), request }
}

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        say(text)
    }
}

impl Said {
    pub(crate) fn by(mut self, principal: &str) -> Self {
        self.call.owner = by(principal).owner;
        self
    }

    pub(crate) fn context(mut self, context: &str) -> Self {
        self.request.message.context_id = Some(ContextId::new(context));
        self
    }

    pub(crate) fn task(mut self, task: &Task) -> Self {
        self.request.message.task_id = Some(task.id.clone());
        self
    }

    pub(crate) fn id(mut self, id: &str) -> Self {
        self.request.message.message_id = MessageId::new(id);
        self
    }

    pub(crate) fn at_once(mut self) -> Self {
        self.request.configuration.return_immediately = true;
        self
    }

    pub(crate) fn history_length(mut self, length: i32) -> Self {
        self.request.configuration.history_length = Some(length);
        self
    }

    pub(crate) fn requesting(mut self, uri: &str) -> Self {
        self.call.requested.push(ExtensionUri::new(uri));
        self
    }
}

/// The call of an anonymous client.
pub(crate) fn anonymous() -> ServiceParameters {
    ServiceParameters::default()
}

/// The call of an authenticated client.
pub(crate) fn by(principal: &str) -> ServiceParameters {
    let owner = Owner { tenant: String::new(), principal: principal.to_owned() };
    ServiceParameters { owner, ..ServiceParameters::default() }
}

impl Door {
    pub(crate) async fn perform(
        &self,
        call: &ServiceParameters,
        operation: Operation,
    ) -> Result<OperationResult, A2aError> {
        in_time(self.handler.perform(call, operation)).await.map(|answer| answer.value)
    }

    /// SendMessage.
    pub(crate) async fn send(&self, said: impl Into<Said>) -> Result<Sent, A2aError> {
        let Said { call, request } = said.into();
        match self.perform(&call, Operation::SendMessage(request)).await? {
            OperationResult::Sent(sent) => Ok(sent),
            _ => panic!("SendMessage gives a task or a message"),
        }
    }

    /// SendMessage that is answered with a task.
    pub(crate) async fn task(&self, said: impl Into<Said>) -> Task {
        match self.send(said).await.expect("an answer") {
            Sent::Task(task) => task.into_task().expect("a task"),
            Sent::Message(message) => panic!("a message: {}", message.text()),
        }
    }

    /// SendMessage that is answered with a message.
    pub(crate) async fn message(&self, said: impl Into<Said>) -> Message {
        match self.send(said).await.expect("an answer") {
            Sent::Message(message) => *message,
            Sent::Task(task) => panic!("a task: {}", task.json().expect("JSON")),
        }
    }

    /// SendMessage that is refused.
    pub(crate) async fn refusal(&self, said: impl Into<Said>) -> A2aError {
        match self.send(said).await {
            Err(error) => error,
            Ok(sent) => panic!("accepted: {}", sent.json().expect("JSON")),
        }
    }

    /// SendMessage whose client waits while the test goes on.
    pub(crate) fn sending(&self, said: impl Into<Said>) -> JoinHandle<Task> {
        let (door, said) = (self.clone(), said.into());
        tokio::spawn(async move { door.task(said).await })
    }

    /// SendStreamingMessage.
    pub(crate) async fn stream(&self, said: impl Into<Said>) -> Result<EventStream, A2aError> {
        let Said { call, request } = said.into();
        events(self.perform(&call, Operation::SendStreamingMessage(request)).await)
    }

    /// All events of SendStreamingMessage.
    pub(crate) async fn streamed(&self, said: impl Into<Said>) -> Vec<String> {
        rest(self.stream(said).await.expect("a stream")).await
    }

    /// SubscribeToTask.
    pub(crate) async fn subscribe(&self, call: &ServiceParameters, id: &TaskId) -> Result<EventStream, A2aError> {
        let request = SubscribeToTaskRequest { id: id.clone(), tenant: None };
        events(self.perform(call, Operation::SubscribeToTask(request)).await)
    }

    /// GetTask.
    pub(crate) async fn get(&self, call: &ServiceParameters, id: &TaskId) -> Result<Task, A2aError> {
        let request = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
        match self.perform(call, Operation::GetTask(request)).await? {
            OperationResult::Task(task) => task.into_task(),
            _ => panic!("GetTask gives a task"),
        }
    }

    /// CancelTask.
    pub(crate) async fn cancel(&self, call: &ServiceParameters, id: &TaskId) -> Result<Task, A2aError> {
        let request = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
        match self.perform(call, Operation::CancelTask(request)).await? {
            OperationResult::CanceledTask(task) => Ok(task),
            _ => panic!("CancelTask gives a task"),
        }
    }

    /// ListTasks for a principal.
    pub(crate) async fn listed(&self, call: &ServiceParameters) -> Vec<Task> {
        match self.perform(call, Operation::ListTasks(ListTasksRequest::default())).await.expect("a page") {
            OperationResult::Tasks(page) => page.tasks,
            _ => panic!("ListTasks gives tasks"),
        }
    }

    /// The number of messages with this reception.
    pub(crate) fn received(&self, reception: &str) -> u64 {
        let mut messages = self.handler.process.counters.messages();
        messages.find(|(name, _)| *name == reception).expect("a reception").1
    }

    /// The number of turns with this end.
    pub(crate) fn ended(&self, end: &str) -> u64 {
        self.handler.process.counters.turns().find(|(name, _)| *name == end).expect("an end").1.count
    }

    /// A task whose turn is in its step `wait`.
    pub(crate) async fn waiting_turn(&self, said: impl Into<Said>) -> Task {
        let task = self.task(said.into().at_once()).await;
        self.agent.waits().await;
        task
    }

    /// Waits until the turns that run have ended.
    pub(crate) async fn turns_over(&self) {
        self.handler.process.running.close();
        in_time(self.handler.process.running.wait()).await;
        self.handler.process.running.reopen();
    }
}

/// Waits for the next millisecond of the time of statuses. Tasks are ordered by it, and within one millisecond by id.
pub(crate) async fn one_millisecond() {
    let now = Timestamp::now();
    while Timestamp::now() == now {
        tokio::task::yield_now().await;
    }
}

/// Waits for an hour on the paused clock, so that a test that would hang fails.
pub(crate) async fn in_time<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60 * 60), work).await.expect("an end within an hour")
}

fn events(result: Result<OperationResult, A2aError>) -> Result<EventStream, A2aError> {
    match result? {
        OperationResult::Events(events) => Ok(events),
        _ => panic!("this operation gives events"),
    }
}
