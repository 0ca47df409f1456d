//! Turns of the template agent: its events, its stored conversation and its prompts.

use std::sync::Arc;

use annex_agent::{
    AgentError, AgentEvent, AgentExecutor, CallbackContext, Callbacks, EventSender, Prompt, StepKind, Steps, Turn,
    TurnContext,
};
use annex_conversation::{ConversationKey, Event, StateDelta, Store, USER_AUTHOR};
use annex_protocol::{ContextId, Json, Message, Part, PartContent, TaskId, TaskState};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::Bench;

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
        assert_eq!(bench.state().await, expected);
    }
}

#[tokio::test]
async fn the_turn_sees_its_answer_when_the_last_piece_is_sent() {
    let bench = Bench::new("I", Some("out"), &["a", "b"]);
    let session = bench.open().await;
    let said = Event::new(USER_AUTHOR, "task", vec![Part::text("hi")], StateDelta::new());
    session.append([said.into()]).await.unwrap();
    let turn = TurnContext {
        task_id: TaskId::new("task"),
        context_id: ContextId::new("c"),
        message: Arc::new(Message::user_text("hi")),
        metadata: Arc::default(),
        conversation: session.clone(),
        steps: Steps::default(),
        cancel: CancellationToken::new(),
        remote: None,
        is_revised: false,
        is_steered: false,
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
    let user = |text: &str| Turn::User(text.to_owned());
    let agent = Turn::Agent { text: "v1".to_owned(), calls: Vec::new() };
    assert_eq!(bench.prompt(1).turns, [user("one"), agent, user("two")]);
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

/// Another process, which changes the conversation while the agent runs.
struct Other {
    store: Arc<dyn Store>,
    key: ConversationKey,
    deletes: bool,
}

#[async_trait]
impl Callbacks for Other {
    async fn before_model(&self, _: &mut CallbackContext, _: &mut Prompt) -> Result<Option<String>, AgentError> {
        if self.deletes {
            assert!(self.store.delete(&self.key).await.unwrap());
        } else {
            let task = TaskId::new("task");
            let turn = self.store.cancel(&task).await.unwrap().unwrap();
            self.store.take(&task, &turn.fence, &"another".into()).await.unwrap().unwrap();
        }
        Ok(None)
    }
}

#[tokio::test]
async fn an_answer_that_the_conversation_does_not_take_fails_the_turn_and_says_why() {
    for (deletes, reason) in [(false, "Another process has changed"), (true, "The conversation was deleted")] {
        let mut bench = Bench::new("I", Some("out"), &["a"]);
        let (store, key) = (bench.store.clone(), bench.key());
        bench.agent.callbacks = Some(Arc::new(Other { store, key, deletes }));
        let (_, result) = bench.turn("hi", "{}").await;
        let Err(AgentError::Broken { message, .. }) = result else { panic!("{reason}: {result:?}") };
        assert!(message.contains(reason) && !message.contains("revision"), "{message}");
        assert_eq!(bench.state().await, "{}");
    }
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

/// The steps without their times, each with whether it ended after its beginning.
pub(crate) fn timed(steps: &Steps) -> Vec<(Value, bool)> {
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
    let cancel = bench.cancel.clone();
    let steps = bench.steps.clone();
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

#[tokio::test]
async fn thoughts_are_neither_shown_nor_kept() {
    let bench = Bench::new("I", Some("out"), &["~let me see", "answer", "~good"]);
    let (events, _) = bench.turn("hi", "{}").await;
    assert_eq!(events, ["Working", "answer (false, true)"]);
    assert_eq!(bench.state().await, r#"{"out":"answer"}"#);

    let only_thought = Bench::new("I", Some("out"), &["~let me see"]);
    only_thought.turn("hi", r#"{"out":"old"}"#).await.1.unwrap();
    assert_eq!(only_thought.state().await, r#"{"out":"old"}"#);
}

#[tokio::test]
async fn the_answer_is_kept_as_an_artifact_that_the_next_instruction_can_use() {
    let mut bench = Bench::answering("Before: {artifact.note?}", None, &[&["first"], &["second"]]);
    bench.agent.artifact = "note".to_owned();
    bench.turn("one", "{}").await.1.unwrap();
    bench.turn("two", "{}").await.1.unwrap();
    assert_eq!(bench.prompt(0).instruction, "Before: ");
    assert_eq!(bench.prompt(1).instruction, "Before: first");
    let kept = bench.store.artifact(&bench.key(), "note").await.unwrap().unwrap();
    assert_eq!(kept.parts, [Part::text("second")]);

    bench.agent.instruction = "{artifact.other}".to_owned();
    let Err(AgentError::Failed { message }) = bench.turn("three", "{}").await.1 else { panic!() };
    assert_eq!(message, "Artifact not found: `other`. The instruction of this agent needs it.");
}
