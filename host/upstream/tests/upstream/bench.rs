//! Runs turns as a server does, with a session, and with a store for the upstream's ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_agent::{
    AgentError, AgentEvent, AgentExecutor, EventSender, Steps, TurnContext, UpstreamContext, UpstreamIds,
    UpstreamIdsError,
};
use annex_conversation::{
    Arrival, Beginning, Conversation, ConversationKey, ConversationStore, Entry, Event, MemoryBounds, MemoryStore,
    StateDelta, Submission, TaskLimits, USER_AUTHOR, Window,
};
use annex_protocol::{ContextId, Message, Metadata, TaskId};
use annex_upstream::{LostContext, StateMapping, UpstreamAgent, UpstreamConfig};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::upstream::Upstream;

/// A config with short timeouts.
pub(crate) fn config(card: &str) -> UpstreamConfig {
    let second = Duration::from_secs(1);
    UpstreamConfig {
        name: "front".to_owned(),
        card: card.to_owned(),
        binding: None,
        headers_forward: Vec::new(),
        credentials: None,
        oauth: None,
        allow_hosts: Vec::new(),
        connect: second,
        idle: 5 * second,
        start: 5 * second,
        refresh: 3600 * second,
        pause: 3600 * second,
        max_answer_bytes: 100_000,
        on_lost_context: LostContext::Fail,
        state: StateMapping::default(),
        screen: None,
    }
}

/// Parses a table of the config, `[agent.state]`.
pub(crate) fn mapping(table: Value) -> StateMapping {
    serde_json::from_value(table).unwrap()
}

/// An agent in front of a test's upstream, with one conversation.
pub(crate) struct Bench {
    pub(crate) agent: UpstreamAgent,
    store: Arc<dyn ConversationStore>,
    ids: Arc<Mutex<Ids>>,
}

/// The stored ids of the upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ids {
    pub(crate) context: Option<String>,
    pub(crate) tasks: HashMap<TaskId, String>,
}

/// The store of ids, as the turn of one task accesses it.
struct IdsOfTurn {
    task: TaskId,
    ids: Arc<Mutex<Ids>>,
}

#[async_trait]
impl UpstreamIds for IdsOfTurn {
    async fn of_context(&self) -> Result<Option<String>, UpstreamIdsError> {
        Ok(self.ids.lock().unwrap().context.clone())
    }

    async fn of_task(&self, task: &TaskId) -> Result<Option<String>, UpstreamIdsError> {
        Ok(self.ids.lock().unwrap().tasks.get(task).cloned())
    }

    async fn store_context(&self, ids: &str) -> Result<(), UpstreamIdsError> {
        self.ids.lock().unwrap().context = Some(ids.to_owned());
        Ok(())
    }

    async fn store_task(&self, ids: &str) -> Result<(), UpstreamIdsError> {
        self.ids.lock().unwrap().tasks.insert(self.task.clone(), ids.to_owned());
        Ok(())
    }
}

/// A client's message, with the data that a server would add.
pub(crate) struct Call {
    pub(crate) task: &'static str,
    pub(crate) message: Message,
    pub(crate) metadata: Metadata,
    /// A change of state, as JSON. Extensions store such a change together with the message.
    pub(crate) delta: &'static str,
    /// Changes the context that the server gives to the agent, such as the start of the turn.
    pub(crate) told: fn(&mut UpstreamContext),
}

impl Call {
    pub(crate) fn new(task: &'static str) -> Self {
        Self { task, message: Message::user_text("hi"), metadata: Metadata::new(), delta: "{}", told: |_| {} }
    }
}

/// The outcome of a turn.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The events that were relayed.
    pub(crate) events: Vec<Value>,
    pub(crate) result: Result<(), AgentError>,
}

impl Turn {
    /// The text of the turn's error.
    pub(crate) fn failure(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }
}

impl Bench {
    pub(crate) async fn new(upstream: &Upstream) -> Self {
        Self::with(config(&upstream.url)).await
    }

    pub(crate) async fn with(config: UpstreamConfig) -> Self {
        let agent = UpstreamAgent::connect(config).await.unwrap();
        let store: Arc<dyn ConversationStore> = Arc::new(MemoryStore::new(MemoryBounds::default()));
        Self { agent, store, ids: Arc::default() }
    }

    /// The upstream's ids that are stored.
    pub(crate) fn ids(&self) -> Ids {
        self.ids.lock().unwrap().clone()
    }

    /// The context for a task, as the server would make it.
    pub(crate) fn remote(&self, task: &'static str) -> UpstreamContext {
        UpstreamContext::new(Arc::new(IdsOfTurn { task: task.into(), ids: Arc::clone(&self.ids) }))
    }

    /// Runs a turn with a plain message in this task.
    pub(crate) async fn say(&self, task: &'static str) -> Turn {
        self.call(Call::new(task)).await
    }

    /// Runs a turn as the server does: first adds the user's event to the session, then runs the agent.
    pub(crate) async fn call(&self, call: Call) -> Turn {
        let conversation = self.open(call.task).await;
        let delta = StateDelta::parse(call.delta).unwrap();
        let said = Event::new(USER_AUTHOR, call.task, call.message.parts.clone(), delta);
        conversation.append([said.into()]).await.unwrap();
        let mut remote = self.remote(call.task);
        (call.told)(&mut remote);
        let turn = TurnContext {
            task_id: call.task.into(),
            context_id: ContextId::new("ours"),
            message: Arc::new(call.message),
            metadata: Arc::new(call.metadata),
            conversation: conversation.clone(),
            steps: Steps::default(),
            cancel: CancellationToken::new(),
            remote: Some(Arc::new(remote)),
            is_revised: false,
            is_steered: false,
        };
        let (sender, mut receiver) = EventSender::bounded(64);
        let result = self.agent.execute(turn, sender).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(match event {
                AgentEvent::Relayed(event) => serde_json::to_value(event).unwrap(),
                AgentEvent::Begun => json!("begun"),
                event => panic!("not relayed: {event:?}"),
            });
        }
        conversation.end(Vec::<Entry>::new()).await.unwrap();
        Turn { events, result }
    }

    /// Begins a turn of the task. The task may have had earlier turns.
    async fn open(&self, task: &'static str) -> Conversation {
        let stored = self.store.task(&task.into()).await.unwrap();
        let submission = Submission::of_process("one".into(), task.into());
        let limits = TaskLimits { bytes: 1 << 20, messages: 1_000, artifacts: 100 };
        let task = stored.map(|stored| (stored.decode().unwrap(), stored.number));
        let beginning = Beginning { task, limits, history: 0 };
        match Conversation::enter(&self.store, key(), submission, beginning).await.unwrap() {
            Arrival::Runs(conversation) => conversation,
            Arrival::Waits(_) => panic!("another turn runs"),
        }
    }

    /// The state of the session.
    pub(crate) async fn state(&self) -> Value {
        let session = self.store.conversation(&key(), Window::NONE).await.unwrap();
        serde_json::from_str(&session.state.merged().to_json_string()).unwrap()
    }

    /// The author and the parts of each event of the session that has parts.
    pub(crate) async fn said(&self) -> Value {
        let session = self.store.conversation(&key(), Window::ALL).await.unwrap();
        let spoken = session.history.iter().filter(|event| !event.parts.is_empty());
        spoken.map(|event| json!([&*event.author, &event.parts])).collect()
    }
}

fn key() -> ConversationKey {
    ConversationKey::new("", "front", "ada", "ours")
}
