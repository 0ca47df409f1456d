//! The imports `caller` and `task-metadata`.

use std::sync::Arc;

use annex_protocol::{Json, JsonObject, StreamResponse};
use annex_runtime::{
    Caller, CallerGrant, Comparison, Extension, Grants, HostCall, Installation, OnFailure, Presence, Runtime,
    StepResult, TurnIds, TurnView, replay,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::recording::{RecordedTurns, TestRedactor};
use crate::steering::all_grants;
use crate::support::{Turn, artifact, component, kept, respond, runtime, with_parameters};

/// The key under which the extension answers.
const RESULT: &str = "steering/result";

/// A turn on the task `t-1`, with a caller.
struct CalledBy(Caller);

impl TurnView for CalledBy {
    fn ids(&self) -> TurnIds {
        TurnIds { task_id: Some("t-1".to_owned()), context_id: Some("c-1".to_owned()) }
    }

    fn caller(&self) -> Option<&Caller> {
        Some(&self.0)
    }
}

/// A caller with a claim, and with a header field that no grant names.
fn caller(principal: &str) -> Arc<dyn TurnView> {
    caller_with(principal, r#"{"org":"acme","salary":1}"#)
}

fn caller_with(principal: &str, claims: &str) -> Arc<dyn TurnView> {
    let mut headers = HeaderMap::new();
    headers.append("x-scope", HeaderValue::from_static("one"));
    headers.append("authorization", HeaderValue::from_static("Bearer secret"));
    Arc::new(CalledBy(Caller {
        presence: Presence::Authenticated,
        principal: Some(principal.to_owned()),
        claims: JsonObject::parse(claims).expect("claims"),
        headers: Some(Arc::new(headers)),
    }))
}

fn grant() -> CallerGrant {
    CallerGrant {
        principal: true,
        claims: vec!["org".to_owned()],
        headers: vec![HeaderName::from_static("x-scope")],
        hide: false,
    }
}

/// Settings for the steering extension with these commands by hook, given as JSON.
fn steering(behaviour: &str, caller: CallerGrant) -> Installation {
    let grants = Grants { caller: Some(caller), ..all_grants().grants };
    Installation { grants, ..with_parameters(&format!(r#"{{"behaviour": {behaviour}}}"#)) }
}

async fn load(runtime: &Runtime, installation: Installation) -> Arc<Extension> {
    let loaded = runtime.load(component(annex_components::TEST_STEERING), installation).await;
    Arc::new(loaded.expect("the steering extension loads"))
}

/// The error of a load in which `describe` runs this command.
async fn refused(command: &str) -> String {
    let settings = steering(&format!(r#"{{"describe": "{command}"}}"#), grant());
    match runtime().load(component(annex_components::TEST_STEERING), settings).await {
        Ok(_) => panic!("it loads"),
        Err(error) => error.to_string(),
    }
}

/// The caller as the extension sees it in `respond`.
async fn seen(extension: &Arc<Extension>, view: &Arc<dyn TurnView>) -> String {
    let mut chain = Turn::with("{}").seen_as(view).chain(std::slice::from_ref(extension)).await;
    let answer = respond(&mut chain).await.expect("no fault");
    answer.metadata.get(RESULT).expect("a result").to::<String>().expect("a text")
}

/// The lines in the extension's log, with the hooks that wrote them.
fn lines(extension: &Extension) -> String {
    extension.log().iter().map(|line| line.message.clone()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_guest_sees_its_caller_as_its_grant_shows_it() {
    let runtime = runtime();
    let all = load(&runtime, steering(r#"{"respond": "caller"}"#, grant())).await;
    let shown = seen(&all, &caller("ada")).await;
    assert!(shown.ends_with(r#"Authenticated ada {"org":"acme"} [("x-scope", "one")]"#), "{shown}");
    let claims = CallerGrant { claims: vec!["salary".to_owned(), "absent".to_owned()], ..CallerGrant::default() };
    let claims = load(&runtime, steering(r#"{"respond": "caller"}"#, claims)).await;
    let shown = seen(&claims, &caller("ada")).await;
    assert!(shown.ends_with(r#"Authenticated nobody {"salary":1} []"#), "{shown}");
}

#[tokio::test]
async fn there_is_no_caller_at_load_and_in_a_turn_without_one() {
    let refused = refused("caller").await;
    assert!(refused.contains("error: there is no caller here, as at load"), "{refused}");
    let extension = load(&runtime(), steering(r#"{"check": "caller"}"#, grant())).await;
    Turn::with("{}").chain(&[Arc::clone(&extension)]).await;
    let lines = lines(&extension);
    assert!(lines.contains("check: error: there is no caller here, as at load"), "{lines}");
}

#[tokio::test]
async fn a_kept_instance_never_shows_the_caller_of_an_earlier_turn() {
    // This extension takes part for callers with the claim `org = "acme"` alone. Instances of the steering extension
    // cannot be kept.
    let (_, path) = annex_components::AUTHORS_EXAMPLES[2];
    let grants = Grants { caller: Some(grant()), ..Grants::default() };
    let settings = kept(Installation { grants, ..with_parameters("{}") });
    let extension = Arc::new(runtime().load(component(path), settings).await.expect("the example loads"));
    for (org, is_active) in [("acme", true), ("other", false), ("acme", true)] {
        let view = caller_with("ada", &format!(r#"{{"org":"{org}"}}"#));
        let chain = Turn::with("{}").seen_as(&view).chain(std::slice::from_ref(&extension)).await;
        assert_eq!(chain.active().count(), usize::from(is_active), "{org}");
    }
}

#[tokio::test]
async fn a_recording_hides_the_caller_where_hide_says_so() {
    let runtime = runtime();
    for (hide, key, expected) in [
        (
            false,
            "-",
            r#"{"presence":"authenticated","principal":"ada","claims":{"org":"acme"},"headers":[["x-scope","one"]]}"#,
        ),
        (
            false,
            "org",
            r#"{"presence":"authenticated","principal":"ada","claims":{"org":"[hidden]"},"headers":[["x-scope","one"]]}"#,
        ),
        (
            true,
            "-",
            r#"{"presence":"authenticated","principal":"[hidden]","claims":{"org":"[hidden]"},"headers":[["x-scope","[hidden]"]]}"#,
        ),
    ] {
        let extension = load(&runtime, steering("{}", CallerGrant { hide, ..grant() })).await;
        let recorded = RecordedTurns::on(&extension);
        drop(Turn::with("{}").seen_as(&caller("ada")).chain(&[Arc::clone(&extension)]).await);
        let turn = recorded.only();
        let hidden = turn.hidden(&TestRedactor(&extension, key)).expect("it can be written");
        let shown = serde_json::to_string(&hidden.caller.as_ref().expect("a caller")).expect("JSON");
        assert_eq!(shown, expected);
        assert_eq!(hidden.hides_what_was_given(), expected.contains("[hidden]"));
    }
}

#[tokio::test]
async fn a_replayed_turn_has_the_recorded_caller() {
    let extension = load(&runtime(), steering(r#"{"respond": "caller"}"#, grant())).await;
    let recorded = RecordedTurns::on(&extension);
    seen(&extension, &caller("ada")).await;
    let turn = recorded.turn(&extension);
    let played = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &played.turn, played.unanswered), "{:?}", played.turn);
    let Some(StepResult::Adds(metadata)) = played.turn.steps.last().map(|step| &step.result) else {
        panic!("no metadata: {:?}", played.turn)
    };
    assert!(metadata.get(RESULT).is_some_and(|shown| shown.get().contains("acme")), "{metadata:?}");
}

/// The task metadata after one artifact, and the extension's log.
async fn set(behaviour: &str, view: Option<&Arc<dyn TurnView>>) -> (Vec<(String, Json)>, String) {
    let extension = load(&runtime(), steering(behaviour, grant())).await;
    let turn = Turn::with("{}");
    let turn = match view {
        Some(view) => turn.seen_as(view),
        None => turn,
    };
    let mut chain = turn.chain(&[Arc::clone(&extension)]).await;
    respond(&mut chain).await.expect("no fault");
    let entries = chain.take_task_metadata();
    assert!(chain.take_task_metadata().is_empty(), "entries are taken once");
    (entries, lines(&extension))
}

#[tokio::test]
async fn hooks_set_entries_of_the_task_and_the_last_value_counts() {
    let (entries, lines) = set(r#"{"check": "set", "respond": "set-many"}"#, Some(&caller("ada"))).await;
    let entries: Vec<(&str, &str)> = entries.iter().map(|(key, value)| (key.as_str(), value.get())).collect();
    assert_eq!(entries, [(RESULT, "99")], "{lines}");
    let (entries, _) = set(r#"{"check": "set-other", "respond": "set"}"#, Some(&caller("ada"))).await;
    let entries: Vec<(&str, &str)> = entries.iter().map(|(key, value)| (key.as_str(), value.get())).collect();
    assert_eq!(entries, [("steering/command", "1"), (RESULT, r#""respond""#)]);
}

#[tokio::test]
async fn entries_that_are_refused_are_errors_of_the_import_and_the_turn_goes_on() {
    for (command, expected) in [
        ("set-foreign", r#"respond: error: the descriptor does not own the key "someone/else""#),
        ("set-bad-json", "respond: error: the value is not JSON: "),
        ("set-deep-json 41", "respond: error: the value is not JSON: "),
        ("set-big 20000", "respond: error: the values would have 20002 bytes; at most 16384 can be set in a turn"),
    ] {
        let (entries, lines) = set(&format!(r#"{{"respond": "{command}"}}"#), Some(&caller("ada"))).await;
        assert!(lines.contains(expected), "{command}: {lines}");
        assert!(entries.is_empty(), "{command}: {entries:?}");
    }
}

#[tokio::test]
async fn nothing_is_set_where_there_is_no_task() {
    let refused = refused("set").await;
    assert!(refused.contains("error: there is no task here"), "{refused}");
    let (entries, lines) = set(r#"{"respond": "set"}"#, None).await;
    assert!(lines.contains("respond: error: there is no task here"), "{lines}");
    assert!(entries.is_empty(), "{entries:?}");
}

#[tokio::test]
async fn an_entry_of_a_failed_extension_is_not_on_the_task() {
    let settings = steering(r#"{"check": "set", "revise": "trap"}"#, grant());
    let extension = load(&runtime(), Installation { on_failure: OnFailure::Skip, ..settings }).await;
    let mut chain = Turn::with("{}").seen_as(&caller("ada")).chain(&[Arc::clone(&extension)]).await;
    assert!(lines(&extension).contains("check: set"));
    chain.run_output_hooks(StreamResponse::ArtifactUpdate(artifact())).await.expect("it is skipped");
    assert_eq!(chain.active().count(), 0, "it failed");
    assert!(chain.take_task_metadata().is_empty());
}

#[tokio::test]
async fn a_recording_has_the_entries_of_the_task_that_the_extension_set() {
    let runtime = runtime();
    let first = load(&runtime, steering(r#"{"respond": "set"}"#, grant())).await;
    let recorded = RecordedTurns::on(&first);
    let mut chain = Turn::with("{}").seen_as(&caller("ada")).chain(&[Arc::clone(&first)]).await;
    respond(&mut chain).await.expect("no fault");
    drop(chain);
    let turn = recorded.turn(&first);
    let calls: Vec<&HostCall> = turn.steps.iter().flat_map(|step| &step.calls).collect();
    let set = HostCall::TaskMetadata { key: RESULT.to_owned(), value: r#""respond""#.to_owned(), error: None };
    assert_eq!(calls, [&set]);
    let same = replay(&first, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
    let other = load(&runtime, steering(r#"{"respond": "set-other"}"#, grant())).await;
    let other = replay(&other, &turn, None).await.expect("it runs");
    let mut comparison = Comparison::default();
    assert!(!comparison.add(&turn, &other.turn, other.unanswered));
    assert_eq!(comparison.differ.keys().collect::<Vec<_>>(), ["task_metadata"]);
}
