//! The hook `transition`: allowed and forbidden changes of a task's state.

use std::sync::Arc;

use annex_protocol::{ContextId, JsonObject, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent};
use annex_runtime::{BeginOutcome, ChangeOutcome, Extension, Fault, Hook, Installation, OnFailure};

use crate::support::{RESPONSE_KEY, Turn, installation, runtime, test_extension};

fn update(state: TaskState) -> TaskStatusUpdateEvent {
    TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state, ..TaskStatus::default() },
        ..TaskStatusUpdateEvent::default()
    }
}

/// The outcome of a change from working to `next` if the extension executes `command`.
async fn change(command: &str, next: TaskState) -> Result<(ChangeOutcome, TaskStatusUpdateEvent), Fault> {
    let extension = test_extension(&runtime(), installation()).await;
    let mut chain = Turn::commanding(&format!(r#"{{"change":"{command}"}}"#)).chain(&[extension]).await;
    let mut update = update(next);
    let steering = chain.run_transition_hooks(TaskState::Working, &mut update).await?;
    Ok((steering, update))
}

async fn begin(command: &str, waits_in: Option<TaskState>) -> Result<BeginOutcome, Fault> {
    let extension = test_extension(&runtime(), installation()).await;
    let mut chain = Turn::commanding(&format!(r#"{{"begin":"{command}"}}"#)).chain(&[extension]).await;
    chain.run_beginning_hooks(&TaskId::from("t-1"), &ContextId::from("c-1"), waits_in, false).await
}

#[tokio::test]
async fn a_change_that_passes_is_unchanged() {
    let (steering, changed) = change("ok", TaskState::Completed).await.expect("no fault");
    assert_eq!((steering, changed), (ChangeOutcome::Passed, update(TaskState::Completed)));
}

#[tokio::test]
async fn an_annotation_is_metadata_of_the_status() {
    let (steering, changed) = change("annotate", TaskState::Working).await.expect("no fault");
    assert_eq!((steering, changed.status.state), (ChangeOutcome::Passed, TaskState::Working));
    let expected = r#""TASK_STATE_WORKING to TASK_STATE_WORKING""#;
    assert_eq!(changed.metadata.get(RESPONSE_KEY).expect("annotated").get(), expected);
}

#[tokio::test]
async fn an_interruption_makes_the_task_wait_and_says_why() {
    let (steering, changed) = change("interrupt", TaskState::Completed).await.expect("no fault");
    assert!(matches!(steering, ChangeOutcome::Interrupted(uri) if uri.as_str() == "https://annex.example/test/v1"));
    assert_eq!(changed.status.state, TaskState::InputRequired);
    let message = changed.status.message.expect("a message");
    assert_eq!((message.text().as_str(), message.extensions.len()), ("Go on?", 1));
    assert!(message.metadata.contains_key(RESPONSE_KEY));
}

#[tokio::test]
async fn a_veto_fails_the_task_with_its_reason() {
    let (steering, changed) = change("veto", TaskState::Completed).await.expect("no fault");
    assert_eq!((steering, changed.status.state), (ChangeOutcome::Vetoed, TaskState::Failed));
    assert_eq!(changed.status.message.expect("a message").text(), "change was told to veto");
}

#[tokio::test]
async fn a_task_that_ends_badly_cannot_be_kept_from_it() {
    for state in [TaskState::Failed, TaskState::Canceled, TaskState::Rejected] {
        for command in ["always-interrupt", "always-veto"] {
            match change(command, state).await {
                Err(Fault::BrokeContract { hook: Hook::Transition, reason, .. }) => {
                    assert!(reason.contains("final"), "{reason}");
                }
                other => unreachable!("{command} {state}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn before_the_agent_runs_a_task_can_be_let_in_kept_waiting_or_rejected() {
    assert!(matches!(begin("ok", None).await, Ok(BeginOutcome::Proceed)));
    match begin("authorize", None).await {
        Ok(BeginOutcome::Interrupted(interruption)) => assert_eq!(interruption.state, TaskState::AuthRequired),
        other => unreachable!("{other:?}"),
    }
    assert!(
        matches!(begin("veto", None).await, Ok(BeginOutcome::Vetoed(reason)) if reason == "begin was told to veto")
    );
    assert!(matches!(begin("first", None).await, Ok(BeginOutcome::Interrupted(_))));
    assert!(matches!(begin("first", Some(TaskState::InputRequired)).await, Ok(BeginOutcome::Proceed)));
}

#[tokio::test]
async fn invalid_results_of_the_transition_hook_are_its_fault() {
    for (command, expected) in [("foreign-key", "does not own"), ("bad-json", "not JSON"), ("error", "told to fail")] {
        let faults = [change(command, TaskState::Working).await.err(), begin_fault(command).await];
        for fault in faults.into_iter().flatten() {
            assert!(fault.to_string().contains(expected), "{command}: {fault}");
            assert!(fault.to_string().contains("in transition"), "{command}: {fault}");
        }
    }
    for command in ["trap", "loop", "panic", "memory-bomb"] {
        assert!(change(command, TaskState::Working).await.is_err(), "{command}");
        assert!(begin(command, None).await.is_err(), "{command}");
    }
}

async fn begin_fault(command: &str) -> Option<Fault> {
    let fault = begin(command, None).await.err();
    assert!(fault.is_some(), "{command}");
    fault
}

#[tokio::test]
async fn of_several_extensions_each_is_asked_once_and_sees_what_the_others_made_of_the_change() {
    let runtime = runtime();
    let mut extensions: Vec<Arc<Extension>> = Vec::new();
    for (uri, command) in [("urn:a", "interrupt"), ("urn:b", "annotate"), ("urn:c", "always-interrupt")] {
        let parameters = format!(r#"{{"uri":"{uri}","behaviour":{{"change":"{command}"}}}}"#);
        let parameters = JsonObject::parse(&parameters).expect("an object");
        extensions.push(test_extension(&runtime, Installation { parameters, ..installation() }).await);
    }
    let mut chain = Turn::with("{}").chain(&extensions).await;
    let mut changed = update(TaskState::Completed);
    let steering = chain.run_transition_hooks(TaskState::Working, &mut changed).await.expect("no fault");
    // The last extension decided. The second one saw that the first had made the task wait.
    assert!(matches!(steering, ChangeOutcome::Interrupted(uri) if uri.as_str() == "urn:c"));
    assert_eq!(changed.status.state, TaskState::InputRequired);
}

#[tokio::test]
async fn a_skipped_extension_steers_nothing() {
    let skipped = Installation { on_failure: OnFailure::Skip, ..installation() };
    let extension = test_extension(&runtime(), skipped).await;
    let mut chain = Turn::commanding(r#"{"change":"trap"}"#).chain(&[extension]).await;
    let mut changed = update(TaskState::Completed);
    let steering = chain.run_transition_hooks(TaskState::Working, &mut changed).await.expect("it is skipped");
    assert_eq!((steering, changed), (ChangeOutcome::Passed, update(TaskState::Completed)));
    assert!(chain.active().next().is_none());
}
