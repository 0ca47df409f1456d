//! An agent that does what the message says.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext, UpstreamContext};
use annex_conversation::{Conversation, Event, StateDelta};
use annex_protocol::{
    A2aError, Artifact, ArtifactId, ContextId, Json, Message, Part, SendMessageRequest, TaskId, TaskState,
};
use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::fixture::in_time;

/// The name of the agent.
pub(crate) const NAME: &str = "scripted";

/// Plays the text of each message: steps, separated by commas, such as `work, artifact hello, wait, fail too hard`.
pub(crate) struct Agent {
    /// The number of turns that have begun.
    turns: AtomicUsize,
    /// The messages of all turns, in the order of the turns.
    heard: Mutex<Vec<String>>,
    /// A permit for each step `wait` that has begun.
    arrived: Semaphore,
    /// A permit for each step `wait` that may end.
    go: Semaphore,
}

impl Agent {
    pub(crate) fn new() -> Self {
        let (arrived, go) = (Semaphore::new(0), Semaphore::new(0));
        Self { turns: AtomicUsize::default(), heard: Mutex::default(), arrived, go }
    }

    /// The number of turns that have begun.
    pub(crate) fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }

    /// The messages of all turns, in the order of the turns.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Waits until one more turn has reached its step `wait`.
    pub(crate) async fn waits(&self) {
        in_time(self.arrived.acquire()).await.expect("an open semaphore").forget();
    }

    /// Ends one step `wait`: the present one or a later one.
    pub(crate) fn go_on(&self) {
        self.go.add_permits(1);
    }

    async fn wait(&self) {
        self.arrived.add_permits(1);
        self.go.acquire().await.expect("an open semaphore").forget();
    }

    async fn step(&self, turn: &TurnContext, events: &EventSender, step: &str) -> Result<(), AgentError> {
        let (name, text) = step.split_once(' ').unwrap_or((step, ""));
        match name {
            "work" => events.send(status(TaskState::Working, text)).await,
            "ask" => events.send(status(TaskState::InputRequired, text)).await,
            "credentials" => events.send(status(TaskState::AuthRequired, text)).await,
            "complete" => events.send(status(TaskState::Completed, text)).await,
            "reject" => events.send(status(TaskState::Rejected, text)).await,
            "artifact" => events.send(artifact(text, false)).await,
            "append" => events.send(artifact(text, true)).await,
            "large" => events.send(artifact(&"x".repeat(text.parse().expect("a number")), false)).await,
            "answer" => events.send(AgentEvent::Message(message(text))).await,
            "begun" => events.send(AgentEvent::Begun).await,
            "say" => say(&turn.conversation, turn, text, StateDelta::new()).await,
            "set" => {
                let (key, value) = text.split_once(' ').expect("a key and a value");
                let mut delta = StateDelta::new();
                delta.insert(key, Json::string(value));
                say(&turn.conversation, turn, "", delta).await
            }
            "read" => {
                let value =
                    turn.conversation.value(text).map_or_else(|| "nothing".to_owned(), |value| value.get().to_owned());
                events.send(artifact(&value, false)).await
            }
            "history" => events.send(artifact(&history(&turn.conversation).await, false)).await,
            "fail" => Err(AgentError::Failed { message: text.to_owned() }),
            "break" => Err(AgentError::internal(std::io::Error::other(text.to_owned()))),
            "refuse" => Err(AgentError::Refused(A2aError::UnsupportedOperation { reason: text.to_owned() })),
            "panic" => panic!("the script says so"),
            "sleep" => {
                tokio::time::sleep(Duration::from_secs(text.parse().expect("seconds"))).await;
                Ok(())
            }
            "yield" => {
                tokio::task::yield_now().await;
                Ok(())
            }
            "wait" => {
                self.wait().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl AgentExecutor for Agent {
    fn name(&self) -> &str {
        NAME
    }

    fn reads_history(&self) -> usize {
        100
    }

    fn before_turn(
        &self,
        request: &SendMessageRequest,
        _conversation: &Conversation,
        delta: &mut StateDelta,
    ) -> Result<(), A2aError> {
        let text = request.message.text();
        if text == "not this" {
            return Err(A2aError::UnsupportedOperation { reason: "not this".to_owned() });
        }
        if text == "refuse at length" {
            return Err(A2aError::UnsupportedOperation { reason: "x".repeat(64 << 10) });
        }
        if text.contains("with a delta") {
            delta.insert("before", Json::string("the turn"));
        }
        Ok(())
    }

    /// Waits as in a step `wait`, if the agent is remote.
    async fn give_up(&self, _task: &TaskId, _remote: &UpstreamContext) {
        self.wait().await;
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        self.turns.fetch_add(1, Ordering::SeqCst);
        let text = turn.message.text();
        self.heard.lock().unwrap().push(text.clone());
        for step in text.split(", ") {
            self.step(&turn, &events, step).await?;
        }
        Ok(())
    }
}

async fn say(conversation: &Conversation, turn: &TurnContext, text: &str, delta: StateDelta) -> Result<(), AgentError> {
    let invocation = turn.task_id.clone();
    let event = Event::new(NAME, invocation, vec![Part::text(text)], delta);
    conversation.append([event.into()]).await.map(drop).map_err(AgentError::unstored)
}

/// The events that the turn sees, such as `user: hello | scripted: hi`.
async fn history(conversation: &Conversation) -> String {
    let events = conversation.history(100).await.expect("a history");
    let line = |event: &std::sync::Arc<Event>| {
        let text = Message { parts: event.parts.clone(), ..Message::default() }.text();
        let error = event.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
        format!("{}: {text}{error}", event.author)
    };
    events.iter().map(line).collect::<Vec<_>>().join(" | ")
}

fn status(state: TaskState, text: &str) -> AgentEvent {
    AgentEvent::Status { state, message: (!text.is_empty()).then(|| message(text)) }
}

fn artifact(text: &str, append: bool) -> AgentEvent {
    let artifact =
        Artifact { artifact_id: ArtifactId::new("a"), parts: vec![Part::text(text)].into(), ..Artifact::default() };
    AgentEvent::Artifact { artifact, append, last_chunk: false }
}

fn message(text: &str) -> Message {
    Message::agent(ContextId::default(), None, vec![Part::text(text)])
}
