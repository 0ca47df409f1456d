//! A component that was built before the hooks `live-card`, `reply`, `steering`, `output` and `reads` existed.

use std::sync::Arc;

use annex_protocol::{
    ContextId, Json, Message, Metadata, StreamResponse, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use annex_runtime::{
    BeginOutcome, ChangeOutcome, ClientCall, ClientCallRequest, Comparison, Extension, MethodAnswer, MethodCall,
    OutputOutcome, StepResult, replay,
};

use crate::recording::RecordedTurns;
use crate::support::{Turn, artifact, installation, outside_of_turns, respond, runtime};

/// The component. `data/README.md` describes its origin.
const COMPONENT: &[u8] = include_bytes!("data/contract_0_1_0.wasm");
/// The metadata key that the extension reads and writes.
const KEY: &str = "earlier";

async fn earlier() -> Arc<Extension> {
    let loaded = runtime().load(COMPONENT.to_vec(), installation()).await;
    Arc::new(loaded.expect("the component loads"))
}

fn value(metadata: &Metadata) -> Option<&str> {
    metadata.get(KEY).map(Json::get)
}

#[tokio::test]
async fn a_component_from_before_the_new_hooks_loads_and_answers() {
    let extension = earlier().await;
    assert_eq!(extension.card().params.as_ref().expect("params").to_json_string(), r#"{"earlier":true}"#);
    let recorded = RecordedTurns::on(&extension);
    let turn = Turn::with(r#"{"earlier":1.0}"#);
    let (mut chain, delta) = turn.start(&[Arc::clone(&extension)]).await.expect("the turn starts");
    assert_eq!(delta.to_json_string(), r#"{"earlier":1.0}"#);

    let begun = chain.run_beginning_hooks(&TaskId::from("t-1"), &ContextId::from("c-1"), None, false).await;
    assert!(matches!(begun, Ok(BeginOutcome::Proceed)), "{begun:?}");
    assert!(chain.run_reply_hooks(&Message::user_text("Hello")).await.expect("no fault").is_none());
    let mut update = TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state: TaskState::Working, ..TaskStatus::default() },
        ..TaskStatusUpdateEvent::default()
    };
    let changed = chain.run_transition_hooks(TaskState::Submitted, &mut update).await.expect("no fault");
    assert_eq!((changed, value(&update.metadata)), (ChangeOutcome::Passed, Some(r#""changed""#)));
    let event = StreamResponse::ArtifactUpdate(artifact());
    match chain.run_output_hooks(event.clone()).await {
        Ok(OutputOutcome::GoesOut(left)) => assert_eq!(left, event),
        other => unreachable!("{other:?}"),
    }
    let answer = respond(&mut chain).await.expect("no fault");
    assert_eq!(value(&answer.metadata), Some(r#""responded""#));
    drop(chain);

    let log: Vec<String> = extension.log().iter().map(|line| line.message.clone()).collect();
    assert_eq!(log, ["activate", "check", "begin"]);
    let turn = recorded.turn(&extension);
    let results: Vec<&StepResult> = turn.steps.iter().map(|step| &step.result).collect();
    assert!(
        matches!(
            results[..],
            [StepResult::Active { .. }, StepResult::Agrees { .. }, StepResult::Agrees { .. }, StepResult::Adds(_)]
        ),
        "{results:?}"
    );
    let same = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
}

#[tokio::test]
async fn a_component_from_before_the_new_hooks_serves_its_method_and_extends_calls_of_clients() {
    let extension = earlier().await;
    let requested = [extension.uri().clone()];
    let (message, metadata) = (Message::default(), Metadata::new());
    let request = outside_of_turns("earlier/echo", &requested, (&message, &metadata));
    let params = Json::parse(r#"{"a":1.0}"#.to_owned()).expect("JSON");
    match MethodCall::start(&extension, &request, &params).await {
        Ok(MethodAnswer::Value(answered)) => assert_eq!(answered.get(), params.get()),
        Ok(MethodAnswer::Results(_)) => unreachable!("it streams"),
        Err(error) => unreachable!("{error}"),
    }

    let message = Message::user_text("Hello");
    let call = ClientCallRequest {
        operation: "SendMessage",
        agent: "http://a.example/card.json",
        declaration: None,
        input: None,
        message: Some(&message),
    };
    let (mut call, addition) = ClientCall::start(&extension, &call).await.expect("it adds");
    assert_eq!(value(&addition.message), Some(r#""sent""#));
    let read = call.after(&StreamResponse::ArtifactUpdate(artifact()), true).await.expect("no fault");
    assert_eq!(read.as_ref().map(Json::get), Some(r#""read""#));
}
