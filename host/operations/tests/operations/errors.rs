//! Refusals of requests, and of a server that is about to stop.

use std::sync::atomic::Ordering;

use annex_operations::operation::{MethodRequest, Operation, OperationResult};
use annex_protocol::{
    A2aError, AgentCard, GetExtendedAgentCardRequest, Json, Message, Part, PartContent, Role, SendMessageRequest,
    TaskId,
};

use crate::fixture::{Said, Settings, anonymous, by, door, door_with, say};
use crate::in_words::{artifacts, fields, rest, status};

fn overloaded(reason: &str) -> A2aError {
    A2aError::Overloaded { reason: reason.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_message_is_refused_in_one_word() {
    let said = Said { call: anonymous(), request: SendMessageRequest::default() };
    assert_eq!(fields(&door().await.refusal(said).await), ["message"]);
}

#[tokio::test(start_paused = true)]
async fn all_faults_of_a_message_are_named_together() {
    let mut said = say("work").id("").history_length(-1);
    said.request.message.role = Role::Agent;
    said.request.message.parts = Vec::new().into();
    let expected = ["message.messageId", "message.role", "message.parts", "configuration.historyLength"];
    assert_eq!(fields(&door().await.refusal(said).await), expected);
}

#[tokio::test(start_paused = true)]
async fn a_raw_part_that_is_not_base64_is_refused() {
    let mut said = say("work");
    let raw = Part { content: PartContent::Raw("no base64!".to_owned()), ..Part::text("") };
    said.request.message.parts = vec![Part::text("work"), raw].into();
    assert_eq!(fields(&door().await.refusal(said).await), ["message.parts[1].raw"]);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_media_type_that_the_agent_does_not_take_is_refused() {
    let door = door().await;
    let mut said = say("work");
    let part = Part { media_type: "text/html".to_owned(), ..Part::text("<b>work</b>") };
    said.request.message.parts = vec![part].into();
    assert_eq!(door.refusal(said).await, A2aError::ContentTypeNotSupported { content_type: "text/html".to_owned() });
    assert_eq!(door.agent.turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_for_an_unknown_task_is_refused_and_begins_no_other() {
    let door = door().await;
    let mut said = say("work");
    said.request.message.task_id = Some(TaskId::new("unknown"));
    assert_eq!(door.refusal(said).await, A2aError::TaskNotFound { task_id: TaskId::new("unknown") });
    assert_eq!(door.agent.turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_for_the_task_of_another_principal_is_refused() {
    let door = door().await;
    let asked = door.task(say("ask").by("ada")).await;
    let error = door.refusal(say("work").task(&asked).by("bob")).await;
    assert_eq!(error, A2aError::TaskNotFound { task_id: asked.id.clone() });
    assert_eq!(status(&door.get(&by("ada"), &asked.id).await.expect("a task")), "INPUT_REQUIRED");
}

#[tokio::test(start_paused = true)]
async fn a_message_for_a_finished_task_is_refused_with_the_way_to_go_on() {
    let door = door().await;
    let done = door.task("work").await;
    let error = door.refusal(say("more").task(&done)).await;
    let reason = format!(
        "task {} is in terminal state TASK_STATE_COMPLETED; send the message without taskId to go on in the context",
        done.id
    );
    assert_eq!(error, A2aError::UnsupportedOperation { reason });
}

#[tokio::test(start_paused = true)]
async fn a_message_that_names_another_context_than_its_task_is_refused() {
    let door = door().await;
    let asked = door.task(say("ask").context("c")).await;
    assert_eq!(fields(&door.refusal(say("work").task(&asked).context("d")).await), ["message.contextId"]);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_whose_fault_they_are() {
    let door = door().await;
    door.refusal("not this").await;
    door.refusal(say("work").id("")).await;
    door.refusal("panic").await;
    assert_eq!((door.received("refused"), door.received("failed"), door.received("started")), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drains_takes_no_message_and_lets_turns_end() {
    let door = door().await;
    let task = door.waiting_turn("work, wait, artifact hello").await;
    door.handler.process.begin_to_drain();
    assert_eq!(door.refusal("work").await, overloaded("the server is draining"));
    door.agent.go_on();
    door.handler.process.running.wait().await;
    let task = door.get(&anonymous(), &task.id).await.expect("a task");
    assert_eq!((status(&task).as_str(), artifacts(&task).as_str()), ("COMPLETED", "hello"));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_was_removed_takes_no_message() {
    let door = door().await;
    door.handler.removed.store(true, Ordering::Relaxed);
    assert_eq!(door.refusal("work").await, overloaded("the tenant has been removed"));
    assert_eq!(door.agent.turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_server_cannot_wait_for_fails_with_the_reason() {
    let door = door().await;
    let task = door.waiting_turn("work, wait").await;
    let stream = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    door.handler.process.stop.cancel();
    let events = ["task WORKING", "FAILED: The server is shutting down; send the message again."];
    assert_eq!(rest(stream).await, events);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_input_outlives_the_stop_of_turns() {
    let door = door().await;
    let asked = door.task("ask").await;
    door.handler.process.stop.cancel();
    assert_eq!(status(&door.get(&anonymous(), &asked.id).await.expect("a task")), "INPUT_REQUIRED");
}

#[tokio::test(start_paused = true)]
async fn a_method_that_no_extension_has_is_not_found() {
    let door = door().await;
    for (extension, expected) in [(None, "echo"), (Some("tools"), "tools/echo")] {
        let params = Json::parse("{}".to_owned()).expect("JSON");
        let extension = extension.map(str::to_owned);
        let request = MethodRequest { tenant: None, extension, method: "echo".to_owned(), params };
        let error = door.perform(&anonymous(), Operation::CallMethod(request)).await.err().expect("no method");
        assert_eq!(error, A2aError::MethodNotFound { method: expected.to_owned() });
    }
}

#[tokio::test(start_paused = true)]
async fn the_extended_card_is_given_where_there_is_one() {
    let card = AgentCard { name: "the card".to_owned(), ..AgentCard::default() };
    let door = door_with(Settings { extended_card: Some(card), ..Settings::default() }).await;
    let operation = Operation::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
    let given = door.perform(&by("ada"), operation).await;
    assert!(matches!(given, Ok(OperationResult::ExtendedAgentCard(card)) if card.name == "the card"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_an_extended_card_says_so() {
    let operation = Operation::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
    let error = door().await.perform(&by("ada"), operation).await.err().expect("no card");
    assert!(matches!(error, A2aError::UnsupportedOperation { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn each_operation_tells_the_tenant_that_its_request_names() {
    let request = SendMessageRequest {
        tenant: Some("acme".to_owned()),
        message: Message::user_text("work"),
        ..Default::default()
    };
    let operation = Operation::SendMessage(request.clone());
    assert_eq!((operation.tenant(), operation.streams()), (Some("acme"), false));
    let operation = Operation::SendStreamingMessage(request);
    assert_eq!((operation.tenant(), operation.streams()), (Some("acme"), true));
}
