//! Turns that are recorded, replayed with another version, and compared.

use std::sync::{Arc, Mutex};

use annex_protocol::{Json, JsonObject, ListTasksResponse, Message, Metadata, StreamResponse, TaskState};
use annex_runtime::{
    Comparison, Extension, Hide, HttpGrant, MethodAnswer, MethodCall, NoTurn, RecordedTurn, RecordingLine, Runtime,
    Scope, ScopeKind, StepInput, StepResult, TurnIds, TurnObserver, TurnView, replay,
};
use async_trait::async_trait;

use crate::capabilities::{capable, http, load, rule, served};
use crate::peer::Peer;
use crate::support::{
    Turn, artifact, component, config, installation, outside_of_turns, reading_the_session, respond, runtime,
    test_extension, with_parameters,
};

/// Stores the recorded turns of an extension.
#[derive(Default)]
pub(crate) struct RecordedTurns(Mutex<Vec<RecordedTurn>>);

impl TurnObserver for RecordedTurns {
    fn wants(&self) -> bool {
        true
    }

    fn ended(&self, turn: RecordedTurn) {
        self.0.lock().expect("no panic").push(turn);
    }
}

impl RecordedTurns {
    pub(crate) fn on(extension: &Extension) -> Arc<Self> {
        let kept = Arc::new(Self::default());
        assert!(extension.observe(Arc::clone(&kept) as _), "nobody else observes it");
        kept
    }

    /// The only recorded turn.
    pub(crate) fn only(&self) -> RecordedTurn {
        let turns = self.0.lock().expect("no panic");
        assert_eq!(turns.len(), 1, "one turn was noted");
        turns[0].clone()
    }

    /// The only recorded turn, after a round trip through a file.
    pub(crate) fn turn(&self, extension: &Extension) -> RecordedTurn {
        let hidden = self.only().hidden(&TestRedactor(extension, "-")).expect("it can be written");
        let line = serde_json::to_string(&RecordingLine::Turn(hidden)).expect("JSON");
        match serde_json::from_str(&line).expect("the line can be read") {
            RecordingLine::Turn(turn) => turn,
            other => unreachable!("it is a turn: {other:?}"),
        }
    }
}

/// Hides the extension's secrets and the values of one key.
pub(crate) struct TestRedactor<'a>(pub(crate) &'a Extension, pub(crate) &'static str);

impl Hide for TestRedactor<'_> {
    fn hides(&self, key: &str) -> bool {
        key == self.1
    }

    fn text(&self, text: &str) -> String {
        self.0.without_secrets(text)
    }

    fn json(&self, value: &Json) -> Json {
        let text = self.0.without_secrets(value.get());
        Json::parse(text).unwrap_or_else(|_| Json::string("[hidden]"))
    }
}

/// A conversation with keys, session state, tasks and agent steps.
struct Rich;

#[async_trait]
impl TurnView for Rich {
    fn ids(&self) -> TurnIds {
        TurnIds { task_id: Some("t-1".to_owned()), context_id: Some("c-1".to_owned()) }
    }

    fn session(&self) -> JsonObject {
        JsonObject::parse(r#"{"name":"Ada"}"#).expect("an object")
    }

    fn task(&self) -> Option<String> {
        Some(r#"{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}"#.to_owned())
    }

    fn key_scope(&self, kind: ScopeKind) -> Option<Scope> {
        match kind {
            ScopeKind::Lasting => None,
            ScopeKind::Context => Some(Scope::context("", "ada", &"c-1".into())),
            ScopeKind::Task => Some(Scope::task("", "ada", &"t-1".into())),
        }
    }

    async fn list_tasks(&self, _request: &str) -> Result<ListTasksResponse, String> {
        Ok(serde_json::from_str(r#"{"tasks":[],"nextPageToken":"next","pageSize":50,"totalSize":0}"#).expect("tasks"))
    }

    fn agent_steps(&self) -> String {
        r#"[{"type":"step"}]"#.to_owned()
    }

    async fn resume_task(&self, _: &str, _: &annex_protocol::ExtensionUri) -> Result<(), String> {
        Err("it does not wait".to_owned())
    }
}

/// The differences between a recorded turn and its replay with another version, as `what: was -> is`.
async fn compared(turn: &RecordedTurn, other: &Arc<Extension>) -> (Comparison, Vec<String>) {
    let replayed = replay(other, turn, None).await.expect("it runs");
    let mut comparison = Comparison::default();
    comparison.add(turn, &replayed.turn, replayed.unanswered);
    let differences = comparison.examples.iter().flat_map(|example| &example.differences);
    let lines = differences.map(|difference| format!("{}: {} -> {}", difference.what, difference.was, difference.is));
    let lines = lines.collect();
    (comparison, lines)
}

/// Commands that use every service outside of a turn.
const COMMANDS: &str = r#""time", {"random": 8}, "hash", {"get": "a"}, {"set": ["a", "1"]}, {"increment": ["n", 2]},
    {"in": ["context", {"increment": ["n", 5]}]}, {"in": ["task", {"set-bytes": ["b", 300]}]}, "list", {"delete": "z"},
    "task", "steps", {"tasks": "{}"}, {"resume": "t-2"}"#;

#[tokio::test]
async fn a_turn_that_is_played_again_gets_the_answers_that_it_got_and_changes_nothing() {
    let peer =
        Peer::answering("HTTP/1.1 200 OK\r\nx-answer: yes\r\nset-cookie: s=1\r\ncontent-length: 2\r\n\r\nhi").await;
    let mut granted = capable();
    let allowed = vec![rule("127.0.0.1", peer.port, "/")];
    granted.grants.http =
        Some(HttpGrant { allow_private: vec!["127.0.0.1".parse().expect("an address")], ..http(allowed) });
    let here = runtime();
    let extension = load(&here, granted.clone()).await;
    let view: Arc<dyn TurnView> = Arc::new(Rich);
    let before = r#"{"set": ["a", "old"]}, {"set": ["n", "40"]}, {"set": ["z", "old"]}"#;
    served(&extension, &view, before).await.expect("the turn starts");
    let kept = RecordedTurns::on(&extension);
    let url = format!("http://127.0.0.1:{}/v1/x?q=1", peer.port);
    let commands = format!(r#"{COMMANDS}, {{"http": {{"method": "POST", "url": "{url}", "body": "sent"}}}}"#);
    let results = served(&extension, &view, &commands).await.expect("the turn starts");
    extension.end_observation();
    assert!(results.contains(&"old".to_owned()) && results.contains(&"42".to_owned()), "{results:?}");
    let turn = kept.turn(&extension);
    assert_eq!(peer.count(), 1);

    // In another process, with no keys, another time and an unreachable peer.
    let elsewhere = load(&runtime(), granted).await;
    let (comparison, differences) = compared(&turn, &elsewhere).await;
    assert_eq!((comparison.agreed, comparison.unanswered), (1, 0), "{differences:?}");
    // In this process, where the keys have changed.
    let (comparison, differences) = compared(&turn, &extension).await;
    assert_eq!((comparison.agreed, comparison.unanswered), (1, 0), "{differences:?}");
    assert_eq!(peer.count(), 1, "nothing was sent");
    let after = r#"{"get": "a"}, {"get": "n"}, {"get": "z"}, {"in": ["context", {"get": "n"}]}"#;
    assert_eq!(served(&extension, &view, after).await.expect("the turn starts"), ["1", "42", "none", "5"]);
    assert!(!serde_json::to_string(&turn).expect("JSON").contains("s=1"), "cookies are left out");
}

#[tokio::test]
async fn a_recording_has_no_secrets() {
    let extension = load(&runtime(), capable()).await;
    let kept = RecordedTurns::on(&extension);
    let view: Arc<dyn TurnView> = Arc::new(NoTurn);
    let results = served(&extension, &view, r#"{"secret": "API_KEY"}"#).await.expect("the turn starts");
    assert_eq!(results, ["hunter2-hunter2"]);
    let line = serde_json::to_string(&kept.turn(&extension)).expect("JSON");
    assert!(line.contains("(secret)") && !line.contains("hunter2"), "{line}");
}

#[tokio::test]
async fn keys_and_texts_that_are_hidden_are_in_no_form_of_a_recording() {
    let extension = load(&runtime(), capable()).await;
    let kept = RecordedTurns::on(&extension);
    let view: Arc<dyn TurnView> = Arc::new(NoTurn);
    let quoted = r#"{\"deep\": \"hunter2-hunter2\"}"#;
    let commands = format!(
        r#"{{"set": ["api_token", "t-0p"]}}, {{"get": "api_token"}}, {{"set": ["json", "{quoted}"]}},
           {{"set": ["url", "hunter2-hunter2"]}}"#
    );
    served(&extension, &view, &commands).await.expect("the turn starts");
    let turns = kept.0.lock().expect("no panic");
    let hidden = turns[0].hidden(&TestRedactor(&extension, "api_token")).expect("it can be written");
    let calls = serde_json::to_string(&hidden.steps[0].calls).expect("JSON");
    assert!(calls.contains("[hidden]") && calls.contains("(secret)"), "{calls}");
    assert!(!calls.contains("t-0p") && !calls.contains("hunter2"), "{calls}");
}

#[tokio::test]
async fn a_version_without_a_hook_is_compared_step_by_step() {
    let runtime = runtime();
    let turn = noted(&test_extension(&runtime, installation()).await).await;
    let loaded = runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    let (_, differences) = compared(&turn, &Arc::new(loaded.expect("it loads"))).await;
    let kinds: Vec<&str> = differences.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(kinds, ["metadata"], "{differences:?}");
}

#[tokio::test]
async fn a_shadow_only_uses_free_instances() {
    let runtime = Runtime::new(&annex_runtime::RuntimeConfig { instances: 2, ..config() }).expect("a runtime");
    let extension = test_extension(&runtime, installation()).await;
    let turn = noted(&extension).await;
    let aside = runtime.aside();
    let candidate = test_extension(&aside, installation()).await;
    assert!(replay(&candidate, &turn, None).await.is_ok());
    let mut chain = Turn::with("{}").chain(std::slice::from_ref(&extension)).await;
    respond(&mut chain).await.expect("no fault");
    let began = std::time::Instant::now();
    let busy = replay(&candidate, &turn, None).await;
    assert!(matches!(busy, Err(annex_runtime::Fault::Overloaded { .. })), "{busy:?}");
    assert!(began.elapsed() < std::time::Duration::from_millis(500), "it does not wait");
}

#[tokio::test]
async fn an_extension_has_one_observer_at_a_time() {
    let extension = test_extension(&runtime(), installation()).await;
    let first = RecordedTurns::on(&extension);
    assert!(!extension.observe(Arc::new(RecordedTurns::default())));
    extension.end_observation();
    let second = RecordedTurns::on(&extension);
    Turn::commanding(r#""delta""#).chain(&[extension]).await;
    assert_eq!((first.0.lock().expect("no panic").len(), second.0.lock().expect("no panic").len()), (0, 1));
}

/// A recorded turn with all kinds of steps, with the usual behaviour of the test extension.
async fn noted(extension: &Arc<Extension>) -> RecordedTurn {
    let kept = RecordedTurns::on(extension);
    let mut chain = Turn::with("{}").chain(std::slice::from_ref(extension)).await;
    chain.run_beginning_hooks(&"t-1".into(), &"c-1".into(), None, false).await.expect("no fault");
    respond(&mut chain).await.expect("no fault");
    let mut update = annex_protocol::TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        ..annex_protocol::TaskStatusUpdateEvent::default()
    };
    update.status.state = TaskState::Completed;
    chain.run_transition_hooks(TaskState::Working, &mut update).await.expect("no fault");
    drop(chain);
    kept.turn(extension)
}

#[tokio::test]
async fn each_difference_of_another_version_has_its_name_and_its_place() {
    let runtime = runtime();
    let turn = noted(&test_extension(&runtime, installation()).await).await;
    let names: Vec<&str> = turn.steps.iter().map(|step| step.input.name()).collect();
    assert_eq!(names, ["request", "begin", "event", "change"]);
    let cases = [
        ("{}", "", 1),
        (r#"{"validate":"delta"}"#, "delta: ", 0),
        (r#"{"check":"rewrite"}"#, "verdict: ", 0),
        (r#"{"activate":"inactive"}"#, "verdict: ", 0),
        (r#"{"validate":"violation"}"#, "verdict: ", 0),
        (r#"{"begin":"interrupt"}"#, "verdict: ", 0),
        (r#"{"respond":"none"}"#, "metadata: ", 0),
        (r#"{"change":"annotate"}"#, "metadata: null", 0),
        (r#"{"change":"veto"}"#, "verdict: ", 0),
    ];
    for (behaviour, expected, agreed) in cases {
        let parameters = format!(r#"{{"behaviour":{behaviour}}}"#);
        let other = test_extension(&runtime, with_parameters(&parameters)).await;
        let (comparison, differences) = compared(&turn, &other).await;
        assert_eq!(comparison.agreed, agreed, "{behaviour}: {differences:?}");
        assert!(differences.concat().contains(expected), "{behaviour}: {differences:?}");
    }
}

#[tokio::test]
async fn a_failing_version_is_distinguished_from_a_differing_one() {
    let runtime = runtime();
    let turn = noted(&test_extension(&runtime, installation()).await).await;
    for command in ["panic", "foreign-key", "bad-json"] {
        let parameters = format!(r#"{{"behaviour":{{"respond":"{command}"}}}}"#);
        let other = test_extension(&runtime, with_parameters(&parameters)).await;
        let (comparison, differences) = compared(&turn, &other).await;
        assert_eq!((comparison.agreed, comparison.failed), (0, 1), "{command}: {differences:?}");
    }
}

#[tokio::test]
async fn what_the_extension_is_not_shown_is_not_noted() {
    let runtime = runtime();
    let loaded = runtime.load(component(annex_components::TIMESTAMP), {
        let mut granted = installation();
        granted.grants.clock = true;
        granted
    });
    let extension = Arc::new(loaded.await.expect("it loads"));
    let kept = RecordedTurns::on(&extension);
    let mut chain = Turn::with(r#"{"other/key": 1}"#).chain(std::slice::from_ref(&extension)).await;
    respond(&mut chain).await.expect("no fault");
    drop(chain);
    let turn = kept.turn(&extension);
    let line = serde_json::to_string(&turn).expect("JSON");
    assert!(!line.contains("Hello") && !line.contains("answer\"") && !line.contains("other/key"), "{line}");
    assert!(line.contains("time"), "{line}");
    let (comparison, differences) = compared(&turn, &extension).await;
    assert_eq!(comparison.agreed, 1, "{differences:?}");
}

#[tokio::test]
async fn session_state_is_recorded_once_and_as_far_as_granted() {
    let runtime = runtime();
    let extension = test_extension(&runtime, reading_the_session()).await;
    let kept = RecordedTurns::on(&extension);
    let view: Arc<dyn TurnView> = Arc::new(Rich);
    let mut chain = Turn::with("{}").seen_as(&view).chain(std::slice::from_ref(&extension)).await;
    respond(&mut chain).await.expect("no fault");
    respond(&mut chain).await.expect("no fault");
    drop(chain);
    let turn = kept.turn(&extension);
    let noted = turn.steps.iter().filter(|step| step.session.is_some()).count();
    assert_eq!((noted, turn.steps.len()), (1, 3));
}

#[tokio::test]
async fn a_turn_with_too_many_bytes_is_left_out_as_a_whole() {
    struct Counts(Mutex<(u32, u32)>);
    impl TurnObserver for Counts {
        fn wants(&self) -> bool {
            true
        }
        fn ended(&self, _: RecordedTurn) {
            self.0.lock().expect("no panic").0 += 1;
        }
        fn left_out(&self) {
            self.0.lock().expect("no panic").1 += 1;
        }
    }
    let extension = test_extension(&runtime(), installation()).await;
    let counts = Arc::new(Counts(Mutex::default()));
    assert!(extension.observe(Arc::clone(&counts) as _));
    let mut chain = Turn::with("{}").chain(std::slice::from_ref(&extension)).await;
    for _ in 0..1_001 {
        respond(&mut chain).await.expect("no fault");
    }
    drop(chain);
    Turn::with("{}").chain(std::slice::from_ref(&extension)).await;
    assert_eq!(*counts.0.lock().expect("no panic"), (1, 1));
}

#[tokio::test]
async fn methods_are_noted_and_played_result_by_result() {
    let runtime = Runtime::new(&config()).expect("the runtime starts");
    let extension = test_extension(&runtime, with_parameters(r#"{"methods":["test/stream"]}"#)).await;
    let kept = RecordedTurns::on(&extension);
    let requested = [extension.uri().clone()];
    let (message, metadata) = (Message::default(), Metadata::new());
    let request = outside_of_turns("test/stream", &requested, (&message, &metadata));
    let params = Json::parse("{}".to_owned()).expect("JSON");
    let Ok(MethodAnswer::Results(mut call)) = MethodCall::start(&extension, &request, &params).await else {
        unreachable!("it streams");
    };
    while call.next().await.expect("no fault").is_some() {}
    drop(call);
    extension.end_observation();
    let turn = kept.turn(&extension);
    assert!(matches!(turn.steps[0].input, StepInput::Call { .. }));
    assert!(matches!(turn.steps.last().expect("steps").result, StepResult::Ends));
    let (comparison, differences) = compared(&turn, &extension).await;
    assert_eq!((comparison.agreed, turn.steps.len() > 3), (1, true), "{differences:?}");
    let ends = with_parameters(r#"{"methods":["test/stream"],"behaviour":{"next":"wrong-result"}}"#);
    let other = test_extension(&runtime, ends).await;
    let (comparison, _) = compared(&turn, &other).await;
    assert_eq!((comparison.agreed, comparison.failed), (0, 1));
}

#[tokio::test]
async fn a_turn_that_was_given_up_leaves_the_steps_that_ended() {
    let extension = test_extension(&runtime(), installation()).await;
    let kept = RecordedTurns::on(&extension);
    let mut chain = Turn::with("{}").chain(std::slice::from_ref(&extension)).await;
    let mut event = StreamResponse::ArtifactUpdate(artifact());
    // Dropped before it completes.
    drop(Box::pin(chain.run_response_hooks(&mut event)));
    drop(chain);
    assert_eq!(kept.turn(&extension).steps.len(), 1);
}

#[tokio::test]
async fn a_turn_that_is_given_up_in_its_first_step_is_not_noted() {
    let extension = test_extension(&runtime(), installation()).await;
    let kept = RecordedTurns::on(&extension);
    let turn = Turn::commanding(r#""loop""#);
    let extensions = [Arc::clone(&extension)];
    let running = turn.start(&extensions);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(5), running).await.is_err());
    assert!(kept.0.lock().expect("no panic").is_empty());
}
