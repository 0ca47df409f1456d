//! The extension that steers turns on command, and its hook `steering`.

use std::sync::Arc;

use annex_protocol::{Json, JsonObject, TaskState};
use annex_runtime::{
    CallerGrant, Chain, Comparison, Extension, Fault, Grants, Hide, Installation, Limits, LiveCardGrant, MadeToolCall,
    ModelOutcome, ModelParameters, OnFailure, PlannedModelCall, PlannedToolCall, Quota, Remark, Runtime, Steered,
    SteeringVerdict, StepInput, StepResult, ToolOutcome, replay,
};
use serde_json::json;

use crate::recording::RecordedTurns;
use crate::support::{Turn, component, installation, log_of, runtime, test_extension};

/// The URI of the extension.
const STEERING: &str = "https://annex.example/steering/v1";

/// Settings with the grants that the extension needs.
pub(crate) fn all_grants() -> Installation {
    let caller = CallerGrant { principal: true, ..CallerGrant::default() };
    let grants = Grants {
        keyvalue: Some(Quota::default()),
        agent_steps: true,
        steering: true,
        caller: Some(caller),
        task_metadata: true,
        rewrite_answer: true,
        answer: true,
        reads: true,
        live_card: Some(LiveCardGrant::default()),
        ..Grants::default()
    };
    Installation { grants, ..installation() }
}

/// Loads the extension with parameters, given as a JSON object.
pub(crate) async fn steering(runtime: &Runtime, parameters: &str, installation: Installation) -> Arc<Extension> {
    let parameters = JsonObject::parse(parameters).expect("a JSON object");
    let installation = Installation { parameters, ..installation };
    let loaded = runtime.load(component(annex_components::TEST_STEERING), installation).await;
    Arc::new(loaded.expect("the steering extension loads"))
}

/// The parameters of an extension that executes `command` in `function`.
fn told(function: &str, command: &str) -> String {
    json!({"behaviour": {function: command}}).to_string()
}

async fn chain(function: &str, command: &str) -> Chain {
    chain_with(function, command, all_grants()).await
}

async fn chain_with(function: &str, command: &str, installation: Installation) -> Chain {
    let extension = steering(&runtime(), &told(function, command), installation).await;
    Turn::with("{}").chain(&[extension]).await
}

fn model_call() -> PlannedModelCall {
    PlannedModelCall {
        round: 1,
        model: "default".to_owned(),
        lent: vec!["default".to_owned(), "small".to_owned()],
        instruction: vec!["Be brief.".to_owned()],
        parameters: ModelParameters::default(),
        tools: vec!["sum".to_owned()],
    }
}

fn json_of(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("JSON")
}

fn tool_call() -> PlannedToolCall {
    PlannedToolCall {
        id: "call-1".to_owned(),
        name: "sum".to_owned(),
        origin: "calculator".to_owned(),
        arguments: json_of(r#"{"a":1.0}"#),
        waited_for: Vec::new(),
    }
}

fn made_call() -> MadeToolCall {
    MadeToolCall {
        id: "call-1".to_owned(),
        name: "sum".to_owned(),
        arguments: json_of(r#"{"a":1.0}"#),
        output: json_of(r#"{"total":3}"#),
        failed: false,
    }
}

/// The call of the model as an extension that executes `command` leaves it.
async fn planned(command: &str) -> Result<(PlannedModelCall, Steered<ModelOutcome>), Fault> {
    let mut call = model_call();
    let steered = chain("before-model", command).await.run_model_hooks(&mut call).await?;
    Ok((call, steered))
}

async fn decided(command: &str, mut call: PlannedToolCall) -> Result<(PlannedToolCall, Steered<ToolOutcome>), Fault> {
    let steered = chain("before-tool", command).await.run_tool_hooks(&mut call, &[]).await?;
    Ok((call, steered))
}

fn text(remark: &Remark) -> String {
    serde_json::to_string(&remark.parts).expect("JSON")
}

#[tokio::test]
async fn a_call_of_the_model_is_made_as_the_extension_leaves_it() {
    for command in ["ok", "no-change", "model"] {
        let (call, steered) = planned(command).await.expect("no fault");
        assert_eq!((call, steered.outcome), (model_call(), ModelOutcome::Made), "{command}");
    }
    let (call, _) = planned("change Be kind.").await.expect("no fault");
    assert_eq!(call.instruction, ["Be brief.", "Be kind."]);
    let (call, _) = planned("replace Be long.").await.expect("no fault");
    assert_eq!(call.instruction, ["Be long."]);
    let (call, _) = planned("lent-model").await.expect("no fault");
    assert_eq!(call.model, "small");
    let (call, _) = planned(r#"parameters {"maxTokens": 5, "stop": ["."]}"#).await.expect("no fault");
    let expected = ModelParameters { max_tokens: Some(5), stop: Some(vec![".".to_owned()]), ..Default::default() };
    assert_eq!(call.parameters, expected);
    let (_, refused) = planned("refuse not today").await.expect("no fault");
    assert_eq!(refused.outcome, ModelOutcome::Refused { by: STEERING.into(), reason: "not today".to_owned() });
}

#[tokio::test]
async fn a_change_of_a_call_beyond_what_the_operator_lends_is_a_fault() {
    for (command, expected) in [
        ("unlent-model", "which is not lent"),
        ("bad-parameters", "its parameters for the model are invalid"),
        ("bad-range", "temperature must be from 0 to 2"),
        ("unknown-parameter", "topK"),
        ("not-an-object", "not a JSON object"),
        ("bad-json", "its parameters for the model are invalid"),
        ("huge-instruction 100000", "100000 bytes to the instruction"),
        ("many-instructions 20", "21 parts"),
        ("error", "before-model"),
        ("trap", "trapped in steering"),
        ("loop", "CPU time limit"),
    ] {
        let fault = planned(command).await.expect_err(command).to_string();
        assert!(fault.contains(expected) && fault.contains("steering"), "{command}: {fault}");
    }
}

#[tokio::test]
async fn a_call_of_a_tool_is_changed_denied_or_waits() {
    let (call, steered) = decided("ok", tool_call()).await.expect("no fault");
    assert!(matches!(steered.outcome, ToolOutcome::Made) && call == tool_call(), "{steered:?}");
    let (call, _) = decided(r#"change {"a":2.50}"#, tool_call()).await.expect("no fault");
    assert_eq!(call.arguments.get(), r#"{"a":2.50}"#);
    let (_, denied) = decided("deny not this one", tool_call()).await.expect("no fault");
    assert!(matches!(&denied.outcome, ToolOutcome::Denied(text) if text == "not this one"), "{denied:?}");
    let (_, denied) = decided("big-denial 10000", tool_call()).await.expect("no fault");
    assert!(matches!(&denied.outcome, ToolOutcome::Denied(text) if text.len() < 5_000), "{denied:?}");
    for (command, state) in [("wait", TaskState::InputRequired), ("authorize", TaskState::AuthRequired)] {
        let (_, waiting) = decided(command, tool_call()).await.expect("no fault");
        let ToolOutcome::Waits(wait) = waiting.outcome else { unreachable!("{command}: {waiting:?}") };
        assert_eq!((wait.by.as_str(), wait.state), (STEERING, state), "{command}");
    }
    for (command, expected) in [
        ("not-an-object", "not a JSON object"),
        ("bad-json", "are not JSON"),
        ("deep-json 50", "are not JSON"),
        ("wait-with-foreign-key", "does not own"),
        ("error", "before-tool"),
    ] {
        let fault = decided(command, tool_call()).await.expect_err(command).to_string();
        assert!(fault.contains(expected), "{command}: {fault}");
    }
}

#[tokio::test]
async fn a_call_that_has_waited_keeps_its_arguments() {
    let waited = |by: &str| PlannedToolCall { waited_for: vec![by.into()], ..tool_call() };
    let (_, passed) = decided("wait", waited(STEERING)).await.expect("no fault");
    assert!(matches!(passed.outcome, ToolOutcome::Made), "{passed:?}");
    let (_, again) = decided("wait-for-ever", waited(STEERING)).await.expect("no fault");
    assert!(matches!(again.outcome, ToolOutcome::Waits(_)), "{again:?}");
    let fault = decided("change-after-wait", waited(STEERING)).await.expect_err("a fault").to_string();
    assert!(fault.contains("a call that it has made wait"), "{fault}");
    // Another extension cannot know of the wait.
    let (call, denied) = decided("change", waited("urn:other")).await.expect("no fault");
    assert!(matches!(denied.outcome, ToolOutcome::Denied(_)) && call.arguments == tool_call().arguments, "{denied:?}");
}

#[tokio::test]
async fn a_call_that_waited_is_denied_if_its_extension_does_not_decide() {
    let limits = Limits { input: 4 << 10, ..Limits::standard() };
    let large = json_of(&format!(r#"{{"x":"{}"}}"#, "x".repeat(5 << 10)));
    let waited = PlannedToolCall { waited_for: vec![STEERING.into()], ..tool_call() };
    let too_large = PlannedToolCall { arguments: large, ..waited.clone() };
    let foreign = PlannedToolCall { waited_for: vec!["urn:gone".into()], ..tool_call() };
    for (command, call, is_made) in [
        ("wait", &waited, true),
        ("trap", &waited, false),
        ("change-after-wait", &waited, false),
        ("wait", &too_large, false),
        ("ok", &foreign, false),
    ] {
        let installation = Installation { limits, on_failure: OnFailure::Skip, ..all_grants() };
        let mut chain = chain_with("before-tool", command, installation).await;
        let held_by = call.waited_for.clone();
        for round in 0..2 {
            let steered = chain.run_tool_hooks(&mut call.clone(), &held_by).await.expect("no fault");
            assert_eq!(matches!(steered.outcome, ToolOutcome::Made), is_made, "{command} {round}: {steered:?}");
        }
    }
}

#[tokio::test]
async fn each_extension_sees_the_changes_of_those_before_it_until_one_denies() {
    let runtime = runtime();
    let mut extensions: Vec<Arc<Extension>> = Vec::new();
    for (uri, before_model, before_tool, after_tool) in [
        ("urn:a", "change more", r#"change {"a":7}"#, r#"change {"total":8}"#),
        ("urn:b", "seen", "seen", "seen"),
        ("urn:c", "refuse no", "deny no", "ok"),
        ("urn:d", "trap", "trap", "ok"),
    ] {
        let behaviour = json!({"before-model": before_model, "before-tool": before_tool, "after-tool": after_tool});
        let parameters = json!({"uri": uri, "behaviour": behaviour}).to_string();
        extensions.push(steering(&runtime, &parameters, all_grants()).await);
    }
    let mut chain = Turn::with("{}").chain(&extensions).await;
    let model = chain.run_model_hooks(&mut model_call()).await.expect("no fault");
    assert!(matches!(model.outcome, ModelOutcome::Refused { .. }), "{model:?}");
    let [remark] = model.remarks.as_slice() else { unreachable!("{model:?}") };
    assert!(remark.by.as_str() == "urn:b" && text(remark).contains("more"), "{remark:?}");
    let tool = chain.run_tool_hooks(&mut tool_call(), &[]).await.expect("no fault");
    assert!(matches!(tool.outcome, ToolOutcome::Denied(_)), "{tool:?}");
    assert!(tool.remarks.first().is_some_and(|remark| text(remark).contains("calculator")), "{tool:?}");
    let mut made = made_call();
    let steered = chain.run_result_hooks(&mut made).await.expect("no fault");
    assert_eq!(made.output.get(), r#"{"total":8}"#);
    assert!(steered.remarks.first().is_some_and(|remark| text(remark).contains('8')), "{steered:?}");
}

#[tokio::test]
async fn a_result_that_is_no_json_is_a_fault() {
    for (command, expected) in [("bad-json", "not JSON"), ("deep-json 50", "not JSON"), ("error", "after-tool")] {
        let fault = chain("after-tool", command).await.run_result_hooks(&mut made_call()).await;
        let fault = fault.expect_err(command).to_string();
        assert!(fault.contains(expected), "{command}: {fault}");
    }
}

#[tokio::test]
async fn a_remark_has_parts_and_metadata_of_the_extension_alone() {
    let (_, steered) = decided("own-key", tool_call()).await.expect("no fault");
    let [remark] = steered.remarks.as_slice() else { unreachable!("{steered:?}") };
    assert_eq!((text(remark).as_str(), remark.metadata.len()), (r#"[{"text":"a remark"}]"#, 1));
    for (command, expected) in [
        ("foreign-key", "does not own"),
        ("remark-bad-value", "not JSON"),
        ("remark-foreign-metadata", "does not own"),
        ("remark-without-parts", "has no part"),
        ("remark-bad-json", "its remark is invalid"),
        ("remark-big 20000", "at most 16384"),
        ("remark-flood", "at most 16384"),
    ] {
        let fault = decided(command, tool_call()).await.expect_err(command).to_string();
        assert!(fault.contains(expected), "{command}: {fault}");
    }
}

#[tokio::test]
async fn a_wrong_remark_of_an_extension_that_may_be_skipped_does_not_cancel_its_verdict() {
    for (command, is_denied) in [("deny-with-bad-remark", true), ("wait-with-foreign-key", false)] {
        let skipped = Installation { on_failure: OnFailure::Skip, ..all_grants() };
        let mut chain = chain_with("before-tool", command, skipped).await;
        for _ in 0..2 {
            let steered = chain.run_tool_hooks(&mut tool_call(), &[]).await.expect("no fault");
            match &steered.outcome {
                ToolOutcome::Denied(text) => assert!(is_denied && text == "sum was denied", "{steered:?}"),
                ToolOutcome::Waits(wait) => assert!(!is_denied && wait.metadata.is_empty(), "{steered:?}"),
                ToolOutcome::Made => unreachable!("{command}: {steered:?}"),
            }
            assert!(steered.remarks.is_empty(), "{command}: {steered:?}");
        }
        assert!(decided(command, tool_call()).await.is_err(), "{command}");
    }
}

#[tokio::test]
async fn remarks_beyond_the_limit_are_not_sent_and_the_turn_goes_on() {
    let mut remarks = 0;
    let log = log_of(async {
        let mut chain = chain("before-tool", "remark").await;
        for _ in 0..70 {
            remarks += chain.run_tool_hooks(&mut tool_call(), &[]).await.expect("no fault").remarks.len();
        }
    });
    let log = log.await;
    assert_eq!(remarks, 64);
    assert_eq!(log.matches("further remarks are not sent").count(), 1, "{log}");
}

#[tokio::test]
async fn what_is_too_large_to_be_checked_does_not_pass_unless_the_extension_may_be_skipped() {
    let limits = Limits { input: 4 << 10, ..Limits::standard() };
    let large = json_of(&format!(r#"{{"x":"{}"}}"#, "x".repeat(5 << 10)));
    for on_failure in [OnFailure::Reject, OnFailure::Skip] {
        let is_skipped = on_failure == OnFailure::Skip;
        let installation = Installation { limits, on_failure, ..all_grants() };
        let mut chain = chain_with("before-tool", "trap", installation).await;
        let mut call = PlannedToolCall { arguments: large.clone(), ..tool_call() };
        let steered = chain.run_tool_hooks(&mut call, &[]).await.expect("no fault");
        assert_eq!(matches!(steered.outcome, ToolOutcome::Made), is_skipped, "{steered:?}");
        let mut made = MadeToolCall { output: large.clone(), ..made_call() };
        chain.run_result_hooks(&mut made).await.expect("no fault");
        assert_eq!(made.output == large, is_skipped, "{made:?}");
        let mut call = PlannedModelCall { instruction: vec!["x".repeat(5 << 10)], ..model_call() };
        let steered = chain.run_model_hooks(&mut call).await;
        assert_eq!(steered.is_ok(), is_skipped, "{steered:?}");
    }
}

#[tokio::test]
async fn a_skipped_extension_lets_steps_pass_and_a_required_one_fails_the_turn() {
    let skipped = Installation { on_failure: OnFailure::Skip, ..all_grants() };
    let mut chain = chain_with("before-tool", "trap", skipped).await;
    for _ in 0..2 {
        let steered = chain.run_tool_hooks(&mut tool_call(), &[]).await.expect("no fault");
        assert!(matches!(steered.outcome, ToolOutcome::Made), "{steered:?}");
    }
    assert_eq!(chain.active().count(), 0);
    let mut chain = chain_with("before-tool", "trap", all_grants()).await;
    assert!(chain.run_tool_hooks(&mut tool_call(), &[]).await.is_err());
    let later = chain.run_result_hooks(&mut made_call()).await.expect_err("a fault").to_string();
    assert!(later.contains("no step may be taken without it"), "{later}");
}

#[tokio::test]
async fn an_agent_asks_only_where_an_extension_has_the_hook() {
    let runtime = runtime();
    let other = test_extension(&runtime, installation()).await;
    assert!(!Turn::with("{}").chain(&[Arc::clone(&other)]).await.steers_steps());
    let recorded = RecordedTurns::on(&other);
    assert!(!Turn::with("{}").chain(&[other]).await.steers_steps());
    drop(recorded);
    assert!(chain("before-tool", "ok").await.steers_steps());
}

/// Hides an argument of the call in these tests.
struct HideArgument;

impl Hide for HideArgument {
    fn hides(&self, _key: &str) -> bool {
        false
    }

    fn text(&self, text: &str) -> String {
        text.to_owned()
    }

    fn json(&self, value: &Json) -> Json {
        json_of(&value.get().replace(r#""a":1.0"#, r#""a":"[hidden]""#))
    }
}

#[tokio::test]
async fn steps_are_recorded_and_played_again() {
    let runtime = runtime();
    let extension = steering(&runtime, &told("before-tool", r#"change {"a":2}"#), all_grants()).await;
    let recorded = RecordedTurns::on(&extension);
    let mut chain = Turn::with("{}").chain(&[Arc::clone(&extension)]).await;
    chain.run_model_hooks(&mut model_call()).await.expect("no fault");
    chain.run_tool_hooks(&mut tool_call(), &[]).await.expect("no fault");
    chain.run_result_hooks(&mut made_call()).await.expect("no fault");
    drop(chain);
    let turn = recorded.turn(&extension);
    let steps: Vec<&str> = turn.steps.iter().map(|step| step.input.name()).collect();
    assert_eq!(steps, ["request", "model", "tool", "tool_result"]);
    assert!(matches!(&turn.steps[2].input, StepInput::Tool(call) if *call == tool_call()), "{turn:?}");
    let StepResult::Steers { verdict: SteeringVerdict::ChangesArguments(arguments), remark: None } =
        &turn.steps[2].result
    else {
        unreachable!("{turn:?}")
    };
    assert_eq!(arguments.get(), r#"{"a":2}"#);
    let hidden = recorded.only().hidden(&HideArgument).expect("it can be written");
    let line = serde_json::to_string(&hidden).expect("JSON");
    assert_eq!(line.matches("[hidden]").count(), 2, "{line}");
    assert!(!line.contains(r#""a":1.0"#), "{line}");
    let same = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
    for command in ["ok", "deny", "wait", r#"change {"a":3}"#, "remark"] {
        let other = steering(&runtime, &told("before-tool", command), all_grants()).await;
        let other = replay(&other, &turn, None).await.expect("it runs");
        assert!(!Comparison::default().add(&turn, &other.turn, other.unanswered), "{command}: {:?}", other.turn);
    }
}
