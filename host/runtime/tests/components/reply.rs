//! The hook `reply`: answers in place of the agent.

use std::sync::Arc;

use annex_protocol::{ContextId, Message, TaskId, TaskState};
use annex_runtime::{
    BeginOutcome, Chain, Comparison, Extension, Fault, GrantNeeded, Grants, Hook, HookError, Installation, Limits,
    LoadError, OnFailure, ReadyAnswer, StepResult, replay,
};

use crate::recording::RecordedTurns;
use crate::steering::{all_grants, steering};
use crate::support::{Turn, component, refused, runtime};

/// The answer of a chain after the hooks at the beginning of the turn.
async fn answer(chain: &mut Chain, message: &Message) -> Result<Option<ReadyAnswer>, HookError> {
    let begun = chain.run_beginning_hooks(&TaskId::from("t-1"), &ContextId::from("c-1"), None, false).await;
    assert!(matches!(begun, Ok(BeginOutcome::Proceed)), "{begun:?}");
    chain.run_reply_hooks(message).await
}

/// The answer of one extension that executes `command`.
async fn told(command: &str) -> Result<Option<ReadyAnswer>, HookError> {
    let parameters = format!(r#"{{"behaviour":{{"before-agent":"{command}"}}}}"#);
    let extension = steering(&runtime(), &parameters, all_grants()).await;
    answer(&mut Turn::with("{}").chain(&[extension]).await, &Message::user_text("Hello")).await
}

async fn fault(command: &str) -> Fault {
    match told(command).await {
        Err(HookError::Fault(fault)) => fault,
        other => unreachable!("{command}: no fault: {other:?}"),
    }
}

fn text(answer: &ReadyAnswer) -> String {
    Message { parts: answer.parts.clone().into(), ..Message::default() }.text()
}

#[tokio::test]
async fn an_extension_answers_with_an_artifact_or_a_status() {
    assert!(told("ok").await.expect("no fault").is_none());
    for (command, state, has_artifact) in [
        ("answer", TaskState::Completed, true),
        ("message", TaskState::Completed, false),
        ("fail", TaskState::Failed, false),
        ("reject", TaskState::Rejected, false),
        ("wait", TaskState::InputRequired, false),
        ("authorize", TaskState::AuthRequired, false),
    ] {
        let answer = told(command).await.expect("no fault").expect("an answer");
        assert_eq!((answer.state, answer.artifact.is_some()), (state, has_artifact), "{command}");
        assert_eq!(answer.by.as_str(), "https://annex.example/steering/v1");
        assert!(!text(&answer).is_empty());
    }
    let annotated = told("own-key").await.expect("no fault").expect("an answer");
    assert_eq!(annotated.metadata.get("steering/result").expect("an entry").get(), "true");
}

#[tokio::test]
async fn the_hook_sees_the_message_with_its_own_metadata_alone() {
    let parameters = r#"{"behaviour":{"before-agent":"seen"}}"#;
    let extension = steering(&runtime(), parameters, all_grants()).await;
    let turn = Turn::with(r#"{"steering/result":1,"someone/else":2}"#);
    let metadata = annex_protocol::Metadata::parse(r#"{"steering/result":1,"someone/else":2}"#).expect("an object");
    let message = Message { metadata, ..Message::user_text("Hello") };
    let answer = answer(&mut turn.chain(&[extension]).await, &message).await.expect("no fault").expect("an answer");
    let seen = text(&answer);
    assert!(seen.starts_with("SendMessage with no task: ") && seen.contains("Hello"), "{seen}");
    assert!(seen.contains("steering/result") && !seen.contains("someone/else"), "{seen}");
}

#[tokio::test]
async fn the_first_extension_that_answers_is_the_last_that_is_asked() {
    let runtime = runtime();
    let mut extensions: Vec<Arc<Extension>> = Vec::new();
    for (uri, command) in [("urn:a", "ok"), ("urn:b", "answer"), ("urn:c", "trap")] {
        let parameters = format!(r#"{{"uri":"{uri}","behaviour":{{"before-agent":"{command}"}}}}"#);
        extensions.push(steering(&runtime, &parameters, all_grants()).await);
    }
    let mut chain = Turn::with("{}").chain(&extensions).await;
    let answered = answer(&mut chain, &Message::user_text("Hello")).await.expect("no fault").expect("an answer");
    assert_eq!(answered.by.as_str(), "urn:b");
    // A turn has one answer.
    assert!(chain.run_reply_hooks(&Message::user_text("Hello")).await.expect("no fault").is_none());
}

#[tokio::test]
async fn invalid_answers_are_a_fault_of_the_extension() {
    for (command, expected) in [
        ("no-parts", "without a part"),
        ("no-content", "part 0 of its answer is not a Part"),
        ("bad-json", "part 0 of its answer is not a Part"),
        ("odd-json 0", "surrogate pair"),
        ("foreign-metadata", "does not own"),
        ("foreign-key", "does not own"),
        ("wait-with-artifact", "with an artifact although the task waits"),
        ("long-name", "257 bytes"),
        ("odd-name", "control character"),
        ("big-result 2000000", "limit of output bytes"),
        ("error", "before-agent"),
        ("trap", "trapped in reply"),
        ("loop", "CPU time limit"),
    ] {
        let fault = fault(command).await.to_string();
        assert!(fault.contains(expected) && fault.contains("reply"), "{command}: {fault}");
    }
}

#[tokio::test]
async fn a_skipped_extension_does_not_answer_and_others_are_asked() {
    let runtime = runtime();
    let skipped = Installation { on_failure: OnFailure::Skip, ..all_grants() };
    let failing = r#"{"uri":"urn:a","behaviour":{"before-agent":"trap"}}"#;
    let answering = r#"{"uri":"urn:b","behaviour":{"before-agent":"answer"}}"#;
    let extensions = [steering(&runtime, failing, skipped).await, steering(&runtime, answering, all_grants()).await];
    let mut chain = Turn::with("{}").chain(&extensions).await;
    let answered = answer(&mut chain, &Message::user_text("Hello")).await.expect("no fault").expect("an answer");
    assert_eq!(answered.by.as_str(), "urn:b");
    assert_eq!(chain.active().count(), 1);
}

#[tokio::test]
async fn a_message_beyond_the_limit_of_an_answering_extension_is_refused() {
    let limits = Limits { input: 4 << 10, ..Limits::standard() };
    let extension = steering(&runtime(), "{}", Installation { limits, ..all_grants() }).await;
    let mut chain = Turn::with("{}").chain(&[extension]).await;
    match answer(&mut chain, &Message::user_text(&"x".repeat(5 << 10))).await {
        Err(HookError::Refused(error)) => assert!(error.to_string().contains("at most 4096 bytes"), "{error}"),
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_component_that_speaks_for_the_agent_needs_the_grants_at_load() {
    let without = |grants: Grants| Installation { grants, ..all_grants() };
    let all = all_grants().grants;
    for (grants, hook, grant) in [
        (Grants { answer: false, ..all.clone() }, Hook::Reply, GrantNeeded::Answer),
        (Grants { steering: false, ..all.clone() }, Hook::Steering, GrantNeeded::Steering),
        (Grants { rewrite_answer: false, ..all.clone() }, Hook::Output, GrantNeeded::RewriteAnswer),
    ] {
        match refused(component(annex_components::TEST_STEERING), without(grants)).await {
            LoadError::NotGranted { needs, grant: needed } => {
                assert_eq!((needs, needed), (format!("the hook {hook}"), grant));
            }
            other => unreachable!("{other}"),
        }
    }
}

#[tokio::test]
async fn an_answer_is_recorded_and_played_again() {
    let runtime = runtime();
    let parameters = r#"{"behaviour":{"before-agent":"answer"}}"#;
    let extension = steering(&runtime, parameters, all_grants()).await;
    let recorded = RecordedTurns::on(&extension);
    let mut chain = Turn::with("{}").chain(&[Arc::clone(&extension)]).await;
    answer(&mut chain, &Message::user_text("Hello")).await.expect("no fault").expect("an answer");
    drop(chain);
    let turn = recorded.turn(&extension);
    let last = turn.steps.last().map(|step| &step.result);
    assert!(matches!(last, Some(StepResult::Answers { state: TaskState::Completed, .. })), "{last:?}");
    let same = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
    let other = steering(&runtime, r#"{"behaviour":{"before-agent":"wait"}}"#, all_grants()).await;
    let other = replay(&other, &turn, None).await.expect("it runs");
    assert!(!Comparison::default().add(&turn, &other.turn, other.unanswered), "{:?}", other.turn);
}
