//! Extensions that are required, passed on or unknown. The tests of `annex-server` cover extensions that are loaded
//! from components.

use annex_operations::extension_set::ExtensionSet;
use annex_operations::operation::{Operation, OperationResult};
use annex_protocol::{
    A2aError, AgentExtension, ExtensionUri, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest,
};
use annex_runtime::Installed;
use std::sync::Arc;

use crate::fixture::{Door, Settings, anonymous, by, door, door_with, say};
use crate::in_words::status;

const REQUIRED: &str = "https://example.com/ext/required/v1";
const OPTIONAL: &str = "https://example.com/ext/optional/v1";

fn declared(uri: &str, required: bool) -> AgentExtension {
    AgentExtension { uri: ExtensionUri::new(uri), required, ..AgentExtension::default() }
}

/// A handler whose remote agent declares one required extension and one that is not.
async fn declaring() -> Door {
    let passed_on = vec![declared(REQUIRED, true), declared(OPTIONAL, false)];
    door_with(Settings { passed_on, ..Settings::default() }).await
}

fn missing(unknown: &[&str]) -> A2aError {
    A2aError::ExtensionSupportRequired {
        missing: vec![ExtensionUri::new(REQUIRED)],
        unknown: unknown.iter().map(|uri| ExtensionUri::new(*uri)).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_required_extension_is_refused_and_named_before_any_turn() {
    let door = declaring().await;
    assert_eq!(door.refusal("work").await, missing(&[]));
    assert_eq!((door.agent.turns(), door.received("refused")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_requested_required_extension_lets_the_message_through() {
    assert_eq!(status(&declaring().await.task(say("work").requesting(REQUIRED)).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn an_optional_extension_may_be_left_out_and_does_not_replace_the_required_one() {
    assert_eq!(declaring().await.refusal(say("work").requesting(OPTIONAL)).await, missing(&[]));
}

#[tokio::test(start_paused = true)]
async fn the_uri_of_a_required_extension_has_to_match_exactly() {
    let door = declaring().await;
    for other in ["https://example.com/ext/required/v2", "https://example.com/ext/required/v1/"] {
        assert_eq!(door.refusal(say("work").requesting(other)).await, missing(&[other]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_needs_the_required_extension_as_well() {
    let door = declaring().await;
    assert_eq!(door.stream("work").await.err(), Some(missing(&[])));
    assert!(door.stream(say("work").requesting(REQUIRED)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_missing_extension_leaves_the_message_id_free() {
    let door = declaring().await;
    door.refusal(say("work").context("c").id("m")).await;
    assert_eq!(status(&door.task(say("work").context("c").id("m").requesting(REQUIRED)).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn reading_and_cancelling_a_task_need_no_required_extension() {
    let door = declaring().await;
    let task = door.task(say("ask").requesting(REQUIRED)).await;
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "INPUT_REQUIRED");
    assert_eq!(status(&door.cancel(&anonymous(), &task.id).await.expect("a cancelled task")), "CANCELED");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_extension_is_ignored_where_none_is_required() {
    assert_eq!(status(&door().await.task(say("work").requesting("https://example.com/unknown")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_set_that_replaces_another_counts_for_the_next_message() {
    let door = door().await;
    door.task("work").await;
    let passed_on = vec![declared(REQUIRED, true)];
    let next = ExtensionSet { number: 2, installed: Installed::default(), passed_on, extended_card: None };
    door.handler.extensions.replace(Arc::new(next));
    assert_eq!(door.refusal("work").await, missing(&[]));
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_a_read_is_byte_for_byte_as_stored() {
    let door = door().await;
    let task = door.task("work").await;
    let stored = door.store.task(&task.id).await.expect("a store").expect("a stored task");
    for call in [anonymous(), say("").requesting(OPTIONAL).call] {
        let request = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
        let Ok(OperationResult::Task(shown)) = door.perform(&call, Operation::GetTask(request)).await else {
            panic!("GetTask gives the task")
        };
        assert_eq!(shown.json().expect("JSON"), stored.json().expect("JSON"));
    }
}

#[tokio::test(start_paused = true)]
async fn reads_name_no_extension_where_none_takes_part() {
    let door = door().await;
    let task = door.task(say("ask")).await;
    let call = say("").requesting(OPTIONAL).call;
    let get = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
    let subscribe = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    for operation in [
        Operation::GetTask(get),
        Operation::ListTasks(ListTasksRequest { context_id: Some(task.context_id), ..ListTasksRequest::default() }),
        Operation::SubscribeToTask(subscribe),
    ] {
        let answer = door.handler.perform(&call, operation).await.expect("an answer");
        assert!(answer.active.is_empty(), "{:?}", answer.active);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_must_not_use_its_set_shows_tasks_all_the_same() {
    let door = door().await;
    let task = door.task(say("ask").by("ada")).await;
    door.handler.extensions.bar(Box::new(|| Some("the extensions are being read".to_owned())));
    assert_eq!(door.get(&by("ada"), &task.id).await.expect("a task"), task);
    assert_eq!(door.listed(&by("ada")).await.len(), 1);
    assert!(door.subscribe(&by("ada"), &task.id).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_must_not_use_its_set_is_unavailable_and_says_why() {
    let door = door().await;
    door.handler.extensions.bar(Box::new(|| Some("the extensions are being read".to_owned())));
    let reason = "the extensions are being read".to_owned();
    assert_eq!(door.refusal("work").await, A2aError::Unavailable { reason, retry_seconds: None });
    assert_eq!(door.agent.turns(), 0);
}
