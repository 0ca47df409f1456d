//! Turns of the template agent: what it sends, what it stores, what its model is told.

use std::sync::{Arc, Mutex};

use annex_agent::{
    AgentError, AgentEvent, AgentExecutor, EventSender, Model, ModelError, ModelEvent, ModelStream, Prompt, Speaker,
    StepKind, Steps, TemplateAgent, Tokens, TurnContext,
};
use annex_protocol::{ContextId, Json, Message, Metadata, Part, PartContent, TaskId, TaskState};
use annex_session::{
    Bounds, Event, InMemorySessionService, SessionKey, SessionService, StateDelta, TurnSession, Turns, USER_AUTHOR,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Answers with fixed pieces and remembers what it was told. `!` is a piece that fails, `…` one that never comes, `#`
/// what it counts.
#[derive(Default)]
struct FixedModel {
    pieces: Vec<&'static str>,
    prompts: Mutex<Vec<Prompt>>,
}

#[async_trait]
impl Model for FixedModel {
    fn name(&self) -> &str {
        "fixed"
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        self.prompts.lock().unwrap().push(prompt);
        let answer = stream::iter(self.pieces.clone()).then(|piece| async move {
            match piece {
                "!" => Err(ModelError { model: "fixed".to_owned(), source: "broken off".into() }),
                "…" => std::future::pending().await,
                "#" => Ok(ModelEvent::Tokens(Tokens { input: Some(12), output: None })),
                text => Ok(ModelEvent::Text(text.to_owned())),
            }
        });
        Ok(answer.boxed())
    }
}

struct Bench {
    service: Arc<dyn SessionService>,
    model: Arc<FixedModel>,
    agent: TemplateAgent,
    cancel: CancellationToken,
    steps: Steps,
}

/// An event in short: the state, or `text (append, last)`.
fn short(event: &AgentEvent) -> String {
    match event {
        AgentEvent::Status { state, .. } => format!("{state:?}"),
        AgentEvent::Relayed(event) => panic!("nothing is relayed here: {event:?}"),
        AgentEvent::Message(message) => format!("message {}", message.message_id),
        AgentEvent::Artifact { artifact, append, last_chunk } => {
            assert_eq!(artifact.name.as_deref(), Some("result"));
            let PartContent::Text(text) = &artifact.parts[0].content else { panic!("not a text part") };
            format!("{text} ({append}, {last_chunk})")
        }
    }
}

impl Bench {
    fn new(instruction: &str, output_key: Option<&str>, pieces: &[&'static str]) -> Self {
        let model = Arc::new(FixedModel { pieces: pieces.to_vec(), ..FixedModel::default() });
        let agent = TemplateAgent {
            name: "guide".to_owned(),
            instruction: instruction.to_owned(),
            output_key: output_key.map(str::to_owned),
            model: model.clone(),
        };
        let service: Arc<dyn SessionService> = Arc::new(InMemorySessionService::new(Bounds::default()));
        Self { service, model, agent, cancel: CancellationToken::new(), steps: Steps::default() }
    }

    async fn open(&self) -> TurnSession {
        let key =
            SessionKey { tenant: "t".into(), app: "guide".into(), user: "u".into(), context: ContextId::new("c") };
        let guard = Turns::default().begin(&key).await.unwrap();
        TurnSession::open(&self.service, key, guard).await.unwrap()
    }

    /// Runs a turn as the server does: the user's event first. Gives the events in short and the result.
    async fn turn(&self, text: &str, delta: &str) -> (Vec<String>, Result<(), AgentError>) {
        let session = self.open().await;
        self.turn_in(session, vec![Part::text(text)], delta).await
    }

    async fn turn_in(
        &self,
        session: TurnSession,
        parts: Vec<Part>,
        delta: &str,
    ) -> (Vec<String>, Result<(), AgentError>) {
        let delta = StateDelta::parse(delta).unwrap();
        session.append(Event::new(USER_AUTHOR, "task", parts.clone(), delta)).await.unwrap();
        let turn = TurnContext {
            task_id: TaskId::new("task"),
            context_id: ContextId::new("c"),
            message: Arc::new(Message { parts, ..Message::user_text("") }),
            metadata: Arc::new(Metadata::new()),
            session,
            steps: self.steps.clone(),
            cancel: self.cancel.clone(),
            remote: None,
        };
        let (sender, mut receiver) = EventSender::bounded(64);
        let result = self.agent.execute(turn, sender).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(short(&event));
        }
        (events, result)
    }

    async fn state(&self) -> String {
        self.open().await.state().to_json_string()
    }

    fn prompt(&self, index: usize) -> Prompt {
        self.model.prompts.lock().unwrap()[index].clone()
    }
}

#[tokio::test]
async fn the_state_of_this_turn_is_in_the_instruction() {
    let instruction = "Serve {user_info} {user:lang?} {app:tone} {temp:hint}.";
    let bench = Bench::new(instruction, None, &["ok"]);
    let delta = r#"{"user_info":{"name":"Ada","age":30},"app:tone":"calm","temp:hint":"brief"}"#;
    let (_, result) = bench.turn("hi", delta).await;
    assert!(result.is_ok());
    assert_eq!(bench.prompt(0).instruction, r#"Serve {"name":"Ada","age":30}  calm brief."#);
    assert_eq!(bench.state().await, r#"{"user_info":{"name":"Ada","age":30},"app:tone":"calm"}"#);
}

#[tokio::test]
async fn a_missing_variable_fails_the_turn_before_the_model_is_asked() {
    let bench = Bench::new("Serve {name} and {user_info}.", None, &["ok"]);
    let (events, result) = bench.turn("hi", r#"{"name":"Ada"}"#).await;
    let Err(AgentError::Failed { message }) = result else { panic!("{result:?}") };
    assert_eq!(message, "Context variable not found: `user_info`. The instruction of this agent needs it.");
    assert!(events.is_empty());
    assert!(bench.model.prompts.lock().unwrap().is_empty());

    let (_, result) = bench.turn("again", r#"{"user_info":"x"}"#).await;
    assert!(result.is_ok(), "the next turn of the same context may supply it");
}

#[tokio::test]
async fn one_piece_is_sent_as_a_whole() {
    let (events, _) = Bench::new("I", None, &["", "hello", ""]).turn("hi", "{}").await;
    assert_eq!(events, ["Working", "hello (false, true)"]);
}

#[tokio::test]
async fn several_pieces_are_appended_and_the_last_one_is_known_as_the_last() {
    let (events, _) = Bench::new("I", None, &["a", "b", "c"]).turn("hi", "{}").await;
    assert_eq!(events, ["Working", "a (false, false)", "b (true, false)", "c (true, true)"]);
}

#[tokio::test]
async fn an_empty_answer_is_an_answer() {
    let bench = Bench::new("I", Some("out"), &[]);
    let (events, _) = bench.turn("hi", r#"{"out":"old"}"#).await;
    assert_eq!(events, ["Working", " (false, true)"]);
    assert_eq!(bench.state().await, r#"{"out":""}"#);
}

#[tokio::test]
async fn the_answer_is_stored_under_the_output_key_in_its_scope() {
    let cases = [("out", r#"{"out":"ab"}"#), ("user:out", r#"{"user:out":"ab"}"#), ("temp:out", "{}")];
    for (output_key, expected) in cases {
        let bench = Bench::new("I", Some(output_key), &["a", "b"]);
        let session = bench.open().await;
        bench.turn_in(session.clone(), vec![Part::text("hi")], "{}").await.1.unwrap();
        assert_eq!(session.value(output_key).unwrap().get(), r#""ab""#, "visible for the rest of the turn");
        drop(session);
        assert_eq!(bench.state().await, expected);
    }
}

#[tokio::test]
async fn the_session_has_the_answer_when_the_last_piece_is_sent() {
    let bench = Bench::new("I", Some("out"), &["a", "b"]);
    let session = bench.open().await;
    session.append(Event::new(USER_AUTHOR, "task", vec![Part::text("hi")], StateDelta::new())).await.unwrap();
    let turn = TurnContext {
        task_id: TaskId::new("task"),
        context_id: ContextId::new("c"),
        message: Arc::new(Message::user_text("hi")),
        metadata: Arc::default(),
        session: session.clone(),
        steps: Steps::default(),
        cancel: CancellationToken::new(),
        remote: None,
    };
    let (sender, mut receiver) = EventSender::bounded(1);
    let agent = bench.agent.clone();
    let running = tokio::spawn(async move { agent.execute(turn, sender).await });
    while let Some(event) = receiver.recv().await {
        if matches!(event, AgentEvent::Artifact { last_chunk: true, .. }) {
            assert_eq!(session.value("out"), Some(Json::string("ab")));
        }
    }
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_model_sees_the_whole_conversation() {
    let bench = Bench::new("I", None, &["v1"]);
    bench.turn("one", "{}").await.1.unwrap();
    bench.turn("two", "{}").await.1.unwrap();
    let turns: Vec<_> = bench.prompt(1).turns.into_iter().map(|turn| (turn.speaker, turn.text)).collect();
    let expected = [(Speaker::User, "one"), (Speaker::Agent, "v1"), (Speaker::User, "two")];
    assert_eq!(turns, expected.map(|(speaker, text)| (speaker, text.to_owned())));
}

#[tokio::test]
async fn data_parts_are_read_as_json_and_files_are_not_read() {
    let bench = Bench::new("I", None, &["ok"]);
    let part = |content| Part { content, ..Part::text("") };
    let data = part(PartContent::Data(Json::parse(r#"{"z":1,"a":2}"#.to_owned()).unwrap()));
    let file = part(PartContent::Url("https://example.com/a.png".to_owned()));
    let session = bench.open().await;
    bench.turn_in(session, vec![Part::text("see"), data, file.clone()], "{}").await.1.unwrap();
    assert_eq!(bench.prompt(0).last_user_text(), "see\n{\"z\":1,\"a\":2}");

    let session = bench.open().await;
    let (_, result) = bench.turn_in(session, vec![file], "{}").await;
    assert!(
        matches!(result, Err(AgentError::Failed { message }) if message.contains("nothing that this agent can read"))
    );
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_stored() {
    let bench = Bench::new("I", Some("out"), &["a", "b", "!"]);
    let (events, result) = bench.turn("hi", "{}").await;
    assert_eq!(events, ["Working", "a (false, false)"]);
    assert!(matches!(result, Err(AgentError::Internal { .. })));
    assert_eq!(bench.state().await, "{}");
}

#[tokio::test]
async fn a_canceled_turn_ends_at_once_and_stores_no_answer() {
    let bench = Bench::new("I", Some("out"), &["a", "b", "…"]);
    let cancel = bench.cancel.clone();
    let (turn, ()) = tokio::join!(bench.turn("hi", "{}"), async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert_eq!(turn.0, ["Working", "a (false, false)", "Canceled"]);
    assert!(turn.1.is_ok());
    assert_eq!(bench.state().await, "{}");
}

/// The steps without their times, and whether each has ended after it began.
fn timed(steps: &Steps) -> Vec<(Value, bool)> {
    let steps: Vec<Value> = serde_json::from_str(&steps.to_json()).unwrap();
    let timed = |mut step: Value| {
        let step_fields = step.as_object_mut().unwrap();
        let start = step_fields.remove("startTime").unwrap();
        let end = step_fields.remove("endTime");
        (step, end.is_some_and(|end| end.as_str() >= start.as_str()))
    };
    steps.into_iter().map(timed).collect()
}

#[tokio::test]
async fn each_call_of_the_model_is_a_step_with_what_it_counts_and_why_it_failed() {
    let expected = [
        (&["a", "#"][..], json!({"kind": "model", "name": "fixed", "inputTokens": 12})),
        (&["a", "!"], json!({"kind": "model", "name": "fixed", "error": "model fixed gave no answer"})),
    ];
    for (pieces, expected) in expected {
        let bench = Bench::new("I", None, pieces);
        let _ = bench.turn("hi", "{}").await;
        assert_eq!(timed(&bench.steps), [(expected, true)]);
    }
}

#[tokio::test]
async fn a_step_that_is_broken_off_has_an_end_and_one_that_runs_has_none() {
    let bench = Bench::new("I", None, &["a", "…"]);
    let (cancel, steps) = (bench.cancel.clone(), bench.steps.clone());
    let (_, running) = tokio::join!(bench.turn("hi", "{}"), async {
        tokio::task::yield_now().await;
        let running = timed(&steps);
        cancel.cancel();
        running
    });
    let step = json!({"kind": "model", "name": "fixed"});
    assert_eq!(running, [(step.clone(), false)]);
    assert_eq!(timed(&bench.steps), [(step, true)]);
}

#[test]
fn steps_are_bounded_in_number_and_size() {
    let steps = Steps::default();
    for _ in 0..10_000 {
        let step = steps.begin(StepKind::Model, &"é".repeat(1_000));
        step.fail(&"x".repeat(1_000));
    }
    let recorded = timed(&steps);
    assert_eq!(recorded.len(), 256);
    assert_eq!(recorded[0].0["name"].as_str().map(str::len), Some(256));
    assert!(steps.to_json().len() < 256 * 1_024);
}

#[tokio::test]
async fn sending_to_nobody_says_so() {
    let (sender, receiver) = EventSender::bounded(1);
    drop(receiver);
    let sent = sender.send(AgentEvent::Status { state: TaskState::Working, message: None }).await;
    assert!(matches!(sent, Err(AgentError::Closed)));
}
