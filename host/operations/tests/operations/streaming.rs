//! SendStreamingMessage.

use std::time::Duration;

use annex_protocol::StreamResponse;
use futures::StreamExt;
use tokio::time::timeout;

use crate::fixture::{anonymous, door, door_in_file, say};
use crate::in_words::{artifacts, next, rest, status};

#[tokio::test(start_paused = true)]
async fn a_stream_is_the_task_and_then_each_event_to_the_end() {
    let events = door().await.streamed("work reading, artifact hello").await;
    assert_eq!(events, ["task SUBMITTED", "WORKING: reading", "artifact hello", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_an_answer_is_one_message() {
    assert_eq!(door().await.streamed("answer hello").await, ["message hello"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_where_input_is_required() {
    let events = door().await.streamed("work, ask Which one?, artifact later").await;
    assert_eq!(events, ["task SUBMITTED", "WORKING", "INPUT_REQUIRED: Which one?"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_where_credentials_are_wanted() {
    assert_eq!(door().await.streamed("credentials").await, ["task SUBMITTED", "AUTH_REQUIRED"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_next_message_begins_with_the_task_as_it_waits() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let events = door.streamed(say("work, artifact this").task(&asked)).await;
    assert_eq!(events, ["task INPUT_REQUIRED", "WORKING", "artifact this", "COMPLETED"]);
}

#[tokio::test]
async fn an_agent_that_writes_right_after_an_event_is_not_in_the_way_of_that_event() {
    let folder = tempfile::tempdir().expect("a folder");
    let door = door_in_file(&folder.path().join("conversations.db")).await;
    let events = door.streamed("work, say one, artifact hello, say two, artifact bye, say three");
    let events = timeout(Duration::from_secs(60), events).await.expect("an end");
    assert_eq!(events, ["task SUBMITTED", "WORKING", "artifact hello", "artifact bye", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn events_arrive_while_the_turn_runs() {
    let door = door().await;
    let mut stream = door.stream("work, wait, artifact one, wait").await.expect("a stream");
    assert_eq!(next(&mut stream).await.as_deref(), Some("task SUBMITTED"));
    assert_eq!(next(&mut stream).await.as_deref(), Some("WORKING"));
    door.agent.waits().await;
    door.agent.go_on();
    assert_eq!(next(&mut stream).await.as_deref(), Some("artifact one"));
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn pieces_of_an_artifact_arrive_one_by_one_and_the_task_has_the_whole() {
    let door = door().await;
    let stream = door.stream(say("artifact one, yield, append two, yield, append three").context("c")).await;
    let mut stream = stream.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    let StreamResponse::Task(task) = first.event() else { panic!("a stream begins with its task") };
    assert_eq!(rest(stream).await, ["artifact one", "append two", "append three", "COMPLETED"]);
    assert_eq!(artifacts(&door.get(&anonymous(), &task.id).await.expect("a task")), "one\ntwo\nthree");
}

#[tokio::test(start_paused = true)]
async fn the_first_piece_of_an_artifact_is_never_appended() {
    let events = door().await.streamed("append one, append two").await;
    assert_eq!(events, ["task SUBMITTED", "artifact one", "append two", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_the_last_event_of_the_stream() {
    let events = door().await.streamed("work, fail Too hard.").await;
    assert_eq!(events, ["task SUBMITTED", "WORKING", "FAILED: Too hard."]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_before_the_first_event_is_an_error_and_no_stream() {
    let error = door().await.stream("refuse not now").await.err().expect("a refusal");
    assert_eq!(error.to_string(), "unsupported operation: not now");
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_an_agent_that_panics_ends_with_the_failed_task() {
    let door = door().await;
    let stream = door.stream("work, wait, panic").await.expect("a stream");
    door.agent.waits().await;
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["task SUBMITTED", "WORKING", "FAILED: The agent broke off."]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_when_the_reader_of_its_stream_goes_away() {
    let door = door().await;
    let mut stream = door.stream("work, wait, artifact hello").await.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    let StreamResponse::Task(task) = first.event() else { panic!("a stream begins with its task") };
    door.agent.waits().await;
    drop(stream);
    door.agent.go_on();
    door.turns_over().await;
    let task = door.get(&anonymous(), &task.id).await.expect("a task");
    assert_eq!((status(&task).as_str(), artifacts(&task).as_str()), ("COMPLETED", "hello"));
}

#[tokio::test(start_paused = true)]
async fn each_event_has_a_number_in_its_task_in_rising_order() {
    let stream = door().await.stream("work, artifact one, artifact two").await.expect("a stream");
    let numbers: Vec<_> = stream.map(|event| event.expect("an event").seq().expect("a number")).collect().await;
    // Other entries of the task have numbers too.
    assert_eq!(numbers, [1, 3, 4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn the_event_of_an_answer_has_no_number() {
    let mut stream = door().await.stream("answer hello").await.expect("a stream");
    assert_eq!(stream.next().await.expect("an event").expect("a message").seq(), None);
}

#[tokio::test(start_paused = true)]
async fn the_length_of_the_history_counts_for_the_first_event_of_a_stream() {
    let mut stream = door().await.stream(say("work").history_length(0)).await.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    let StreamResponse::Task(task) = first.event() else { panic!("a stream begins with its task") };
    assert!(task.history.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_an_error_when_the_server_closes_its_streams() {
    let door = door().await;
    let stream = door.stream("work, wait").await.expect("a stream");
    door.agent.waits().await;
    door.handler.process.closing.cancel();
    let events = rest(stream).await;
    assert_eq!(events[..2], ["task SUBMITTED", "WORKING"]);
    assert!(events.len() == 3 && events[2].starts_with("error: "), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_sends_more_events_than_are_in_flight_loses_none() {
    let text = (0..50).map(|number| format!("artifact {number}")).collect::<Vec<_>>().join(", ");
    let events = door().await.streamed(text.as_str()).await;
    assert_eq!(events.len(), 52);
    assert_eq!((events[1].as_str(), events[50].as_str()), ("artifact 0", "artifact 49"));
}
