//! A template agent in a session, with a model whose answers a test scripts.

use std::sync::{Arc, Mutex};

use annex_agent::{
    AgentError, AgentEvent, AgentExecutor, EventSender, Model, ModelError, ModelEvent, ModelStream, Prompt, Steps,
    TemplateAgent, Tokens, ToolCall, TurnContext,
};
use annex_conversation::{
    Arrival, Beginning, Conversation, ConversationKey, ConversationStore, Entry, Event, MemoryBounds, MemoryStore,
    StateDelta, Store, Submission, TaskLimits, USER_AUTHOR, Window,
};
use annex_protocol::{ContextId, Json, Message, Metadata, Part, PartContent, TaskId};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

/// A model with fixed answers that records its prompts. `!` is a piece that fails, `…` a piece that never arrives, `#`
/// a token count, `~text` a thought, `>tool {}` a call. The last answer repeats.
#[derive(Default)]
pub(crate) struct FixedModel {
    answers: Vec<Vec<&'static str>>,
    pub(crate) prompts: Mutex<Vec<Prompt>>,
}

#[async_trait]
impl Model for FixedModel {
    fn name(&self) -> &str {
        "fixed"
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        let number = {
            let mut prompts = self.prompts.lock().unwrap();
            prompts.push(prompt);
            prompts.len().min(self.answers.len())
        };
        let pieces = self.answers[number - 1].clone();
        let answer = stream::iter(pieces.into_iter().enumerate()).then(|(index, piece)| async move {
            match piece {
                "!" => Err(ModelError { model: "fixed".to_owned(), source: "broken off".into() }),
                "…" => std::future::pending().await,
                "#" => Ok(ModelEvent::Tokens(Tokens { input: Some(12), output: None })),
                other => Ok(said(index, other)),
            }
        });
        Ok(answer.boxed())
    }
}

/// The event for a piece. Calls are numbered within one answer, as some providers do.
fn said(index: usize, piece: &str) -> ModelEvent {
    if let Some(thought) = piece.strip_prefix('~') {
        return ModelEvent::Thought(thought.to_owned());
    }
    let Some((name, arguments)) = piece.strip_prefix('>').and_then(|call| call.split_once(' ')) else {
        return ModelEvent::Text(piece.to_owned());
    };
    let arguments = Json::parse(arguments.to_owned()).unwrap();
    ModelEvent::Call(ToolCall { id: format!("call_{index}"), name: name.to_owned(), arguments, signatures: Vec::new() })
}

pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) model: Arc<FixedModel>,
    pub(crate) agent: TemplateAgent,
    pub(crate) cancel: CancellationToken,
    pub(crate) steps: Steps,
    pub(crate) task: TaskId,
}

/// An event in short: the state, or `text (append, last)`.
pub(crate) fn short(event: &AgentEvent) -> String {
    match event {
        AgentEvent::Status { state, .. } => format!("{state:?}"),
        AgentEvent::Relayed(_) | AgentEvent::Begun | AgentEvent::Question(_) | AgentEvent::Waits { .. } => {
            panic!("nothing is relayed here: {event:?}")
        }
        AgentEvent::Message(message) => format!("message {}", message.message_id),
        AgentEvent::Artifact { artifact, append, last_chunk } => {
            let PartContent::Text(text) = &artifact.parts[0].content else { panic!("not a text part") };
            format!("{text} ({append}, {last_chunk})")
        }
    }
}

impl Bench {
    pub(crate) fn new(instruction: &str, output_key: Option<&str>, pieces: &[&'static str]) -> Self {
        Self::answering(instruction, output_key, &[pieces])
    }

    /// A bench whose model gives one of `answers` after the other.
    pub(crate) fn answering(instruction: &str, output_key: Option<&str>, answers: &[&[&'static str]]) -> Self {
        let answers = answers.iter().map(|pieces| pieces.to_vec()).collect();
        let model = Arc::new(FixedModel { answers, ..FixedModel::default() });
        let mut agent = TemplateAgent::new("guide", instruction, model.clone());
        agent.output_key = output_key.map(str::to_owned);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(MemoryBounds::default()));
        let cancel = CancellationToken::new();
        let steps = Steps::default();
        let task = TaskId::new("task");
        Self { store, model, agent, cancel, steps, task }
    }

    pub(crate) fn key(&self) -> ConversationKey {
        ConversationKey::new("t", "guide", "u", "c")
    }

    pub(crate) async fn open(&self) -> Conversation {
        open(&self.store, self.key(), &self.task).await
    }

    /// Runs a turn as the server does, with the user's event first. Returns the events in short form and the result.
    pub(crate) async fn turn(&self, text: &str, delta: &str) -> (Vec<String>, Result<(), AgentError>) {
        let conversation = self.open().await;
        self.turn_in(conversation, vec![Part::text(text)], delta).await
    }

    pub(crate) async fn turn_in(
        &self,
        conversation: Conversation,
        parts: Vec<Part>,
        delta: &str,
    ) -> (Vec<String>, Result<(), AgentError>) {
        let (events, result) = self.events(conversation, parts, delta).await;
        (events.iter().map(short).collect(), result)
    }

    /// Like [`Self::turn`], with whole events.
    pub(crate) async fn events(
        &self,
        conversation: Conversation,
        parts: Vec<Part>,
        delta: &str,
    ) -> (Vec<AgentEvent>, Result<(), AgentError>) {
        let delta = StateDelta::parse(delta).unwrap();
        let said = Event::new(USER_AUTHOR, self.task.as_str(), parts.clone(), delta);
        conversation.append([said.into()]).await.unwrap();
        let turn = TurnContext {
            task_id: self.task.clone(),
            context_id: ContextId::new("c"),
            message: Arc::new(Message { parts: parts.into(), ..Message::user_text("") }),
            metadata: Arc::new(Metadata::new()),
            conversation: conversation.clone(),
            steps: self.steps.clone(),
            cancel: self.cancel.clone(),
            remote: None,
            is_revised: false,
            is_steered: false,
        };
        let (sender, mut receiver) = EventSender::bounded(64);
        let result = self.agent.execute(turn, sender).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        if !conversation.is_over() {
            // The server ends a turn also where its agent has failed.
            let _ = conversation.end(Vec::<Entry>::new()).await;
        }
        (events, result)
    }

    pub(crate) async fn state(&self) -> String {
        self.store.conversation(&self.key(), Window::NONE).await.unwrap().state.merged().to_json_string()
    }

    pub(crate) fn prompt(&self, index: usize) -> Prompt {
        self.model.prompts.lock().unwrap()[index].clone()
    }
}

/// Begins a turn of the task, which may have had others.
pub(crate) async fn open(store: &Arc<dyn Store>, key: ConversationKey, task: &TaskId) -> Conversation {
    let stored = store.task(task).await.unwrap();
    let limits = TaskLimits { bytes: 1 << 20, messages: 1_000, artifacts: 100 };
    let task_before = stored.map(|stored| (stored.decode().unwrap(), stored.number));
    let submission = Submission::of_process("one".into(), task.clone());
    let store: Arc<dyn ConversationStore> = store.clone();
    let beginning = Beginning { task: task_before, limits, history: 0 };
    match Conversation::enter(&store, key, submission, beginning).await.unwrap() {
        Arrival::Runs(conversation) => conversation,
        Arrival::Waits(_) => panic!("another turn runs"),
    }
}

/// Serves on a free port. Returns the base URL of an API there.
pub(crate) async fn serve(router: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}
