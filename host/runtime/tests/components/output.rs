//! The hook `output`: revised, held and refused content.

use std::sync::Arc;

use annex_protocol::{
    Artifact, Json, Message, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use annex_runtime::{
    Chain, Comparison, Extension, Fault, Installation, Limits, OnFailure, OutputOutcome, StepResult, replay,
};

use crate::recording::RecordedTurns;
use crate::steering::{all_grants, steering};
use crate::support::{Turn, log_of, runtime};

/// A chain of one extension that executes `command` for each event.
async fn chain(command: &str) -> Chain {
    chain_with(command, all_grants()).await
}

async fn chain_with(command: &str, installation: Installation) -> Chain {
    let extension = steering(&runtime(), &format!(r#"{{"behaviour":{{"revise":"{command}"}}}}"#), installation).await;
    Turn::with("{}").chain(&[extension]).await
}

fn chunk(id: &str, text: &str, append: bool, last_chunk: bool) -> StreamResponse {
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: Artifact { artifact_id: id.into(), parts: vec![Part::text(text)].into(), ..Artifact::default() },
        append,
        last_chunk,
        ..TaskArtifactUpdateEvent::default()
    })
}

fn whole(text: &str) -> StreamResponse {
    chunk("a-1", text, false, true)
}

fn status(state: TaskState, text: Option<&str>) -> StreamResponse {
    let message = text.map(|text| Message::agent("c-1".into(), None, vec![Part::text(text)]));
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state, message, ..TaskStatus::default() },
        ..TaskStatusUpdateEvent::default()
    })
}

fn message(text: &str) -> StreamResponse {
    StreamResponse::Message(Message::agent("c-1".into(), None, vec![Part::text(text)]))
}

/// The parts of the event that goes out, as JSON.
fn parts(outcome: Result<OutputOutcome, Fault>) -> String {
    let parts = match went_out(outcome) {
        StreamResponse::Message(message) => message.parts,
        StreamResponse::StatusUpdate(update) => update.status.message.map(|message| message.parts).unwrap_or_default(),
        StreamResponse::ArtifactUpdate(update) => update.artifact.parts,
        StreamResponse::Task(task) => unreachable!("{task:?}"),
    };
    serde_json::to_string(&parts).expect("JSON")
}

fn went_out(outcome: Result<OutputOutcome, Fault>) -> StreamResponse {
    match outcome {
        Ok(OutputOutcome::GoesOut(event)) => event,
        other => unreachable!("it does not go out: {other:?}"),
    }
}

fn is_withheld(outcome: &Result<OutputOutcome, Fault>) -> bool {
    matches!(outcome, Ok(OutputOutcome::Withheld))
}

fn fault(outcome: Result<OutputOutcome, Fault>) -> String {
    match outcome {
        Err(fault) => fault.to_string(),
        Ok(outcome) => unreachable!("no fault: {outcome:?}"),
    }
}

#[tokio::test]
async fn content_is_unchanged_unless_it_is_replaced() {
    for event in [whole("answer"), status(TaskState::Working, Some("I look.")), message("Hello")] {
        let left = chain("ok").await.run_output_hooks(event.clone()).await;
        assert_eq!(went_out(left), event);
        let replaced = chain("rewrite").await.run_output_hooks(event.clone()).await;
        assert_eq!(parts(replaced), r#"[{"text":"rewritten"}]"#);
    }
    let StreamResponse::ArtifactUpdate(replaced) = went_out(chain("rewrite").await.run_output_hooks(whole("a")).await)
    else {
        unreachable!("an artifact")
    };
    assert_eq!(replaced.artifact.extensions.len(), 1);
    // A status without a message has nothing to replace, and gets a message when parts are added.
    let silent = status(TaskState::Working, None);
    assert_eq!(went_out(chain("rewrite").await.run_output_hooks(silent.clone()).await), silent);
    assert_eq!(parts(chain("add").await.run_output_hooks(silent).await), r#"[{"text":"added"}]"#);
    let empty = Turn::with("{}").chain(&[]).await.run_output_hooks(whole("answer")).await;
    assert_eq!(went_out(empty), whole("answer"));
}

#[tokio::test]
async fn the_hook_sees_the_place_and_the_joined_texts_of_the_content() {
    let mut event = whole("4111 ");
    if let StreamResponse::ArtifactUpdate(update) = &mut event {
        update.artifact.parts.push(Part::text("1111"));
    }
    let seen = parts(chain("seen").await.run_output_hooks(event).await);
    assert!(seen.contains(r#"a-1 first last, 0 held: [{\"text\":\"4111 1111\"}]"#), "{seen}");
    let seen = parts(chain("seen").await.run_output_hooks(status(TaskState::Working, Some("x"))).await);
    assert!(seen.contains(r#"TASK_STATE_WORKING, 0 held: [{\"text\":\"x\"}]"#), "{seen}");
}

#[tokio::test]
async fn nothing_is_left_of_an_event_whose_parts_are_removed() {
    let mut chain = chain("empty").await;
    assert_eq!(parts(chain.run_output_hooks(status(TaskState::Working, Some("x"))).await), "[]");
    assert_eq!(parts(chain.run_output_hooks(message("x")).await), r#"[{"text":""}]"#);
    // The first and the last chunk tell the client that the artifact begins and ends.
    assert_eq!(parts(chain.run_output_hooks(chunk("a", "x", false, false)).await), r#"[{"text":""}]"#);
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "x", true, false)).await));
    assert_eq!(parts(chain.run_output_hooks(chunk("a", "x", true, true)).await), r#"[{"text":""}]"#);
}

#[tokio::test]
async fn a_replacement_keeps_the_metadata_of_others_or_says_why_not() {
    let mut event = whole("answer");
    if let StreamResponse::ArtifactUpdate(update) = &mut event {
        update.artifact.parts[0].metadata = Metadata::parse(r#"{"citation":1}"#).expect("an object");
    }
    let dropped = fault(chain("drop-metadata").await.run_output_hooks(event.clone()).await);
    assert!(dropped.contains(r#"metadata["citation"]"#) && dropped.contains("without a reason"), "{dropped}");
    let foreign = fault(chain("foreign-metadata").await.run_output_hooks(event.clone()).await);
    assert!(foreign.contains("does not own"), "{foreign}");
    let kept = parts(chain("upper").await.run_output_hooks(event.clone()).await);
    assert_eq!(kept, r#"[{"text":"ANSWER","metadata":{"citation":1}}]"#);
    let log = log_of(async {
        let left = parts(chain("drop-with-reason").await.run_output_hooks(event).await);
        assert_eq!(left, r#"[{"text":"without metadata"}]"#);
    });
    assert!(log.await.contains("metadata of others on part 0 is left out: it was told to"));
}

#[tokio::test]
async fn extensions_revise_in_the_order_of_response() {
    let runtime = runtime();
    let mut extensions: Vec<Arc<Extension>> = Vec::new();
    for (uri, command) in [("urn:first", "upper"), ("urn:second", "add"), ("urn:third", "rewrite")] {
        let parameters = format!(r#"{{"uri":"{uri}","behaviour":{{"revise":"{command}"}}}}"#);
        extensions.push(steering(&runtime, &parameters, all_grants()).await);
    }
    let mut chain = Turn::with("{}").chain(&extensions).await;
    let StreamResponse::ArtifactUpdate(update) = went_out(chain.run_output_hooks(whole("answer")).await) else {
        unreachable!("an artifact")
    };
    // The first extension has the last word, also about what the others have added.
    assert_eq!(update.artifact.parts, [Part::text("REWRITTENADDED")]);
    let uris: Vec<&str> = update.artifact.extensions.iter().map(|uri| uri.as_str()).collect();
    assert_eq!(uris, ["urn:third", "urn:second", "urn:first"]);
}

#[tokio::test]
async fn a_held_chunk_comes_with_the_next_one() {
    let mut chain = chain("hold").await;
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "one ", false, false)).await));
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "two ", true, false)).await));
    assert!(chain.holds_back(&"a".into()) && !chain.holds_back(&"b".into()));
    let StreamResponse::ArtifactUpdate(update) =
        went_out(chain.run_output_hooks(chunk("a", "three", true, true)).await)
    else {
        unreachable!("an artifact")
    };
    assert_eq!(
        serde_json::to_string(&update.artifact.parts).expect("JSON"),
        r#"[{"text":"one two "},{"text":"three"}]"#
    );
    // The client has got nothing of the artifact yet.
    assert!(!update.append && update.last_chunk);
    assert!(!chain.holds_back(&"a".into()));
}

#[tokio::test]
async fn a_chunk_that_replaces_its_artifact_replaces_what_is_held() {
    let mut chain = chain("hold").await;
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "I look.", false, false)).await));
    assert_eq!(parts(chain.run_output_hooks(chunk("a", "found", false, true)).await), r#"[{"text":"found"}]"#);
}

#[tokio::test]
async fn held_chunks_are_shown_as_the_last_ones_before_the_task_ends() {
    let mut chain = chain("hold").await;
    for id in ["a", "b"] {
        assert!(is_withheld(&chain.run_output_hooks(chunk(id, id, false, false)).await));
    }
    for id in ["a", "b"] {
        let held = chain.run_output_hooks_on_held().await.expect("no fault").expect("held content");
        let StreamResponse::ArtifactUpdate(update) = went_out(Ok(held)) else { unreachable!("an artifact") };
        assert_eq!((update.artifact.artifact_id.as_str(), update.last_chunk, update.append), (id, true, false));
        assert_eq!(update.artifact.parts, [Part::text(id)]);
    }
    assert!(chain.run_output_hooks_on_held().await.expect("no fault").is_none());
}

#[tokio::test]
async fn extensions_after_the_holding_one_see_what_it_lets_go() {
    let runtime = runtime();
    let holding = r#"{"uri":"urn:holding","behaviour":{"revise":"hold"}}"#;
    let seeing = r#"{"uri":"urn:seeing","behaviour":{"revise":"seen"}}"#;
    let extensions = [steering(&runtime, seeing, all_grants()).await, steering(&runtime, holding, all_grants()).await];
    let mut chain = Turn::with("{}").chain(&extensions).await;
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "one ", false, false)).await));
    let held = chain.run_output_hooks_on_held().await.expect("no fault").expect("held content");
    let seen = parts(Ok(held));
    assert!(seen.contains(r#"a first last, 0 held: [{\"text\":\"one \"}]"#), "{seen}");
}

#[tokio::test]
async fn metadata_of_others_stays_when_an_extension_removes_all_parts() {
    let mut waiting = status(TaskState::InputRequired, Some("Pay."));
    if let StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        status: TaskStatus { message: Some(message), .. },
        ..
    }) = &mut waiting
    {
        message.metadata = Metadata::parse(r#"{"pay":1}"#).expect("an object");
    }
    let StreamResponse::StatusUpdate(left) = went_out(chain("empty").await.run_output_hooks(waiting).await) else {
        unreachable!("a status")
    };
    let message = left.status.message.expect("a message");
    assert_eq!(message.metadata.get("pay").map(Json::get), Some("1"));
    assert_eq!(message.parts.as_slice(), [Part::text("")]);
    let mut appended = chunk("a-1", "x", true, false);
    assert!(is_withheld(&chain("empty").await.run_output_hooks(appended.clone()).await));
    if let StreamResponse::ArtifactUpdate(update) = &mut appended {
        update.metadata = Metadata::parse(r#"{"k":1}"#).expect("an object");
    }
    assert_eq!(parts(chain("empty").await.run_output_hooks(appended).await), r#"[{"text":""}]"#);
}

#[tokio::test]
async fn holding_back_too_much_is_a_fault_and_nothing_goes_out() {
    let mut many = chain("hold").await;
    for number in 0..16 {
        assert!(is_withheld(&many.run_output_hooks(chunk(&format!("a-{number}"), "x", false, false)).await));
    }
    let limits = Limits { input: 1 << 10, ..Limits::standard() };
    let mut large = chain_with("hold", Installation { limits, ..all_grants() }).await;
    let text = "x".repeat(600);
    assert!(is_withheld(&large.run_output_hooks(chunk("a", &text, false, false)).await));
    let mut annotated = chain_with("hold", Installation { limits, ..all_grants() }).await;
    assert!(is_withheld(&annotated.run_output_hooks(chunk("a", "x", false, false)).await));
    let mut with_metadata = chunk("a", "x", true, false);
    if let StreamResponse::ArtifactUpdate(update) = &mut with_metadata {
        update.metadata = Metadata::parse(&format!(r#"{{"k":"{}"}}"#, "x".repeat(1 << 10))).expect("an object");
    }
    for (chain, event) in [
        (&mut many, chunk("a-16", &text, false, false)),
        (&mut large, chunk("b", &text, false, false)),
        (&mut annotated, with_metadata),
    ] {
        let fault = chain.run_output_hooks(event).await.expect_err("a fault");
        assert!(matches!(fault, Fault::HoldsTooMuch { .. }), "{fault:?}");
        // Nothing that was held may go out after the fault.
        assert!(chain.run_output_hooks_on_held().await.expect("no fault").is_none());
    }
}

#[tokio::test]
async fn only_chunks_before_the_last_can_be_held() {
    for (command, event) in [
        ("hold-last", whole("x")),
        ("hold-for-ever", whole("x")),
        ("hold-message", message("x")),
        ("hold-message", status(TaskState::Working, Some("x"))),
    ] {
        let fault = fault(chain(command).await.run_output_hooks(event).await);
        assert!(fault.contains("holds back"), "{command}: {fault}");
    }
}

#[tokio::test]
async fn refused_content_ends_the_turn_with_the_reason() {
    let mut refusing = chain("refuse").await;
    match refusing.run_output_hooks(whole("answer")).await {
        Ok(OutputOutcome::Refused { by, reason }) => {
            assert_eq!(
                (by.as_str(), reason.as_str()),
                ("https://annex.example/steering/v1", "revise was told to refuse")
            );
        }
        other => unreachable!("{other:?}"),
    }
    // The text of the failed turn is not the agent's.
    assert!(!refusing.revises_output());
}

#[tokio::test]
async fn final_states_cannot_be_refused() {
    for state in [TaskState::Failed, TaskState::Canceled, TaskState::Rejected] {
        let fault = fault(chain("refuse-final").await.run_output_hooks(status(state, Some("x"))).await);
        assert!(fault.contains("which is final"), "{state}: {fault}");
        let replaced = chain("rewrite").await.run_output_hooks(status(state, Some("x"))).await;
        assert_eq!(parts(replaced), r#"[{"text":"rewritten"}]"#, "{state}");
    }
}

#[tokio::test]
async fn invalid_results_of_the_output_hook_are_its_fault() {
    for (command, expected) in [
        ("no-part", "part 2 of content that has 1 parts"),
        ("twice", "twice"),
        ("bad-json", "is not a Part"),
        ("no-content", "is not a Part"),
        ("odd-json 0", "surrogate pair"),
        ("error", "told to fail"),
        ("big-result 2000000", "limit of output bytes"),
        ("trap", "trapped in output"),
        ("loop", "CPU time limit"),
    ] {
        let fault = fault(chain(command).await.run_output_hooks(whole("x")).await);
        assert!(fault.contains(expected), "{command}: {fault}");
        assert!(fault.contains("output"), "{command}: {fault}");
    }
}

#[tokio::test]
async fn a_skipped_extension_lets_held_and_later_content_through() {
    let skipped = Installation { on_failure: OnFailure::Skip, ..all_grants() };
    let mut chain = chain_with("hold-for-ever", skipped).await;
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "one ", false, false)).await));
    let failing = parts(chain.run_output_hooks(chunk("a", "two", true, true)).await);
    assert_eq!(failing, r#"[{"text":"one "},{"text":"two"}]"#);
    assert_eq!(parts(chain.run_output_hooks(whole("three")).await), r#"[{"text":"three"}]"#);
    assert!(chain.active().next().is_none());
}

#[tokio::test]
async fn nothing_goes_out_without_a_required_extension_that_failed() {
    let parameters = r#"{"behaviour":{"change":"loop 4000000000"}}"#;
    let extension = steering(&runtime(), parameters, all_grants()).await;
    let mut chain = Turn::with("{}").chain(&[extension]).await;
    let mut update = TaskStatusUpdateEvent { task_id: "t-1".into(), context_id: "c-1".into(), ..Default::default() };
    chain.run_transition_hooks(TaskState::Submitted, &mut update).await.expect_err("a fault");
    let fault = fault(chain.run_output_hooks(whole("answer")).await);
    assert!(fault.contains("nothing may go out without it"), "{fault}");
}

#[tokio::test]
async fn a_revised_turn_is_recorded_and_played_again() {
    let runtime = runtime();
    let holding = r#"{"behaviour":{"revise":"hold"}}"#;
    let extension = steering(&runtime, holding, all_grants()).await;
    let recorded = RecordedTurns::on(&extension);
    let mut chain = Turn::with("{}").chain(&[Arc::clone(&extension)]).await;
    assert!(is_withheld(&chain.run_output_hooks(chunk("a", "one ", false, false)).await));
    went_out(chain.run_output_hooks(chunk("a", "two", true, true)).await);
    assert!(is_withheld(&chain.run_output_hooks(chunk("b", "three", false, false)).await));
    went_out(Ok(chain.run_output_hooks_on_held().await.expect("no fault").expect("held content")));
    drop(chain);
    let turn = recorded.turn(&extension);
    let results: Vec<&StepResult> = turn.steps.iter().skip(1).map(|step| &step.result).collect();
    assert!(
        matches!(
            results[..],
            [StepResult::Holds, StepResult::Agrees { .. }, StepResult::Holds, StepResult::Agrees { .. }]
        ),
        "{results:?}"
    );
    let same = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
    let other = steering(&runtime, r#"{"behaviour":{"revise":"rewrite"}}"#, all_grants()).await;
    let other = replay(&other, &turn, None).await.expect("it runs");
    assert!(!Comparison::default().add(&turn, &other.turn, other.unanswered), "{:?}", other.turn);
}
