//! SubscribeToTask.

use annex_operations::operation::{Operation, OperationResult};
use annex_protocol::{A2aError, StreamResponse, SubscribeToTaskRequest, TaskId};
use futures::StreamExt;

use crate::fixture::{Door, anonymous, by, door, say};
use crate::in_words::{fields, next, rest};

/// SubscribeToTask of 0.3.
async fn follow_turn(door: &Door, id: &TaskId) -> Vec<String> {
    let request = SubscribeToTaskRequest { id: id.clone(), tenant: None };
    match door.perform(&anonymous(), Operation::SubscribeToTurn(request)).await.expect("a stream") {
        OperationResult::Events(events) => rest(events).await,
        _ => panic!("a subscription gives events"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_the_task_as_it_is_and_the_rest() {
    let door = door().await;
    let task = door.waiting_turn("work, artifact one, wait, artifact two").await;
    let stream = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["task WORKING", "artifact two", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn all_subscribers_see_the_same_events_in_the_same_order() {
    let door = door().await;
    let task = door.waiting_turn("work, wait, artifact one, yield, artifact two").await;
    let one = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    let other = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    door.agent.go_on();
    let (one, other) = tokio::join!(rest(one), rest(other));
    assert_eq!(one, other);
    assert_eq!(one, ["task WORKING", "artifact one", "artifact two", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_misses_nothing_and_holds_up_no_turn() {
    let door = door().await;
    let task = door.waiting_turn("work, wait, artifact one, artifact two").await;
    let stream = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(rest(stream).await, ["task WORKING", "artifact one", "artifact two", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_finished_task_has_no_stream() {
    let door = door().await;
    let task = door.task("work").await;
    let error = door.subscribe(&anonymous(), &task.id).await.err().expect("a finished task");
    let reason = format!("task {} is finished; use GetTask to read it", task.id);
    assert_eq!(error, A2aError::UnsupportedOperation { reason });
}

#[tokio::test(start_paused = true)]
async fn a_subscription_of_1_0_stays_while_the_task_waits_and_over_the_next_turn() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let mut stream = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    assert_eq!(next(&mut stream).await.as_deref(), Some("task INPUT_REQUIRED"));
    door.task(say("work, ask And then?").task(&asked)).await;
    door.task(say("artifact done").task(&asked)).await;
    assert_eq!(rest(stream).await, ["WORKING", "INPUT_REQUIRED: And then?", "artifact done", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_of_0_3_ends_with_the_turn() {
    let door = door().await;
    let task = door.waiting_turn("work, wait, ask Which one?").await;
    door.agent.go_on();
    assert_eq!(follow_turn(&door, &task.id).await, ["task WORKING", "INPUT_REQUIRED: Which one?"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_cannot_be_followed() {
    let id = TaskId::new("unknown");
    let error = door().await.subscribe(&anonymous(), &id).await.err().expect("no task");
    assert_eq!(error, A2aError::TaskNotFound { task_id: id });
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_principal_cannot_be_followed() {
    let door = door().await;
    let task = door.waiting_turn(say("work, wait").by("ada")).await;
    let error = door.subscribe(&by("bob"), &task.id).await.err().expect("another owner");
    assert_eq!(error, A2aError::TaskNotFound { task_id: task.id });
}

#[tokio::test(start_paused = true)]
async fn a_subscription_needs_an_id() {
    let error = door().await.subscribe(&anonymous(), &TaskId::default()).await.err().expect("no id");
    assert_eq!(fields(&error), ["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_back_gets_the_events_after_the_last_that_it_has() {
    let door = door().await;
    let task = door.waiting_turn("work, artifact one, yield, artifact two, wait, artifact three").await;
    let mut call = anonymous();
    call.last_event = Some(2);
    let stream = door.subscribe(&call, &task.id).await.expect("a stream");
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["artifact one", "artifact two", "artifact three", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_has_all_events_gets_those_that_follow() {
    let door = door().await;
    let asked = door.task("work, ask").await;
    let mut call = anonymous();
    call.last_event = Some(4);
    let stream = door.subscribe(&call, &asked.id).await.expect("a stream");
    door.task(say("artifact done").task(&asked)).await;
    assert_eq!(rest(stream).await, ["artifact done", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_names_an_event_of_the_future_gets_the_task() {
    let door = door().await;
    let asked = door.task("work, ask").await;
    let mut call = anonymous();
    call.last_event = Some(1_000);
    let mut stream = door.subscribe(&call, &asked.id).await.expect("a stream");
    assert_eq!(next(&mut stream).await.as_deref(), Some("task INPUT_REQUIRED"));
}

#[tokio::test(start_paused = true)]
async fn the_first_event_of_a_subscription_has_the_number_of_the_last_event_in_it() {
    let door = door().await;
    let asked = door.task("work, ask").await;
    let mut stream = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    assert!(matches!(first.event(), StreamResponse::Task(task) if *task == asked));
    assert_eq!(first.seq(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_waiting_task_ends_with_an_error_when_the_server_closes_its_streams() {
    let door = door().await;
    let asked = door.task("ask").await;
    let stream = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    door.handler.process.closing.cancel();
    let events = rest(stream).await;
    assert_eq!(events[0], "task INPUT_REQUIRED");
    assert!(
        events[1].contains("the server is shutting down and the task goes on; subscribe to it again"),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn subscribers_stay_over_turns_and_see_the_same_in_the_same_order() {
    let door = door().await;
    let asked = door.task("ask").await;
    let one = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    let other = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    for text in ["ask again", "credentials"] {
        door.task(say(text).task(&asked)).await;
    }
    let late = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    door.task(say("work, artifact done").task(&asked)).await;
    let (one, other, late) = (rest(one).await, rest(other).await, rest(late).await);
    assert_eq!(one[..3], ["task INPUT_REQUIRED", "INPUT_REQUIRED: again", "AUTH_REQUIRED"]);
    assert_eq!(one[3..], ["WORKING", "artifact done", "COMPLETED"]);
    assert_eq!(one, other);
    assert_eq!((late[0].as_str(), &late[1..]), ("task AUTH_REQUIRED", &one[3..]));
}
