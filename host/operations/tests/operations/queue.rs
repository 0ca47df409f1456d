//! One turn at a time in each conversation.

use std::time::Duration;

use annex_protocol::A2aError;
use tokio::time::Instant;

use crate::fixture::{Settings, anonymous, door, door_with, say};
use crate::in_words::{artifacts, next, rest, status};

/// The settings of a handler that lets this many turns wait in each conversation.
fn waiting_turns(waiting: usize) -> Settings {
    let mut settings = Settings::default();
    settings.turns.waiting = waiting;
    settings
}

#[tokio::test(start_paused = true)]
async fn turns_of_one_conversation_run_one_after_the_other() {
    let door = door().await;
    let first = door.sending(say("work, wait").context("c"));
    door.agent.waits().await;
    let second = door.sending(say("work, artifact two").context("c"));
    tokio::task::yield_now().await;
    assert_eq!(door.agent.turns(), 1);
    door.agent.go_on();
    first.await.expect("a task");
    assert_eq!(artifacts(&second.await.expect("a task")), "two");
    assert_eq!(door.agent.heard(), ["work, wait", "work, artifact two"]);
}

#[tokio::test(start_paused = true)]
async fn turns_of_one_conversation_run_in_the_order_of_their_messages() {
    let door = door().await;
    let first = door.sending(say("work, wait").context("c"));
    door.agent.waits().await;
    let mut later = Vec::new();
    for text in ["one", "two", "three"] {
        later.push(door.sending(say(text).context("c")));
        tokio::task::yield_now().await;
    }
    door.agent.go_on();
    first.await.expect("a task");
    for task in later {
        task.await.expect("a task");
    }
    assert_eq!(door.agent.heard(), ["work, wait", "one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn turns_of_two_conversations_run_at_the_same_time() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    assert_eq!(status(&door.task(say("work").context("d")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn one_context_id_of_two_principals_is_two_conversations() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c").by("ada")).await;
    assert_eq!(status(&door.task(say("work").context("c").by("bob")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_refuses_the_next_message() {
    let door = door_with(waiting_turns(1)).await;
    let first = door.sending(say("work, wait").context("c"));
    door.agent.waits().await;
    let second = door.sending(say("work").context("c"));
    tokio::task::yield_now().await;
    let error = door.refusal(say("work").context("c")).await;
    assert!(matches!(error, A2aError::Overloaded { .. }), "{error}");
    door.agent.go_on();
    first.await.expect("a task");
    assert_eq!(status(&second.await.expect("a task")), "COMPLETED");
    assert_eq!(door.received("overloaded"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_full_queue_refused_may_come_again() {
    let door = door_with(waiting_turns(0)).await;
    let first = door.sending(say("work, wait").context("c"));
    door.agent.waits().await;
    door.refusal(say("work").context("c").id("m")).await;
    door.agent.go_on();
    first.await.expect("a task");
    door.turns_over().await;
    assert_eq!(status(&door.task(say("work").context("c").id("m")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_lets_the_next_one_run() {
    let door = door().await;
    let first = door.sending(say("work, wait, fail Too hard.").context("c"));
    door.agent.waits().await;
    let second = door.sending(say("work").context("c"));
    door.agent.go_on();
    assert_eq!(status(&first.await.expect("a task")), "FAILED: Too hard.");
    assert_eq!(status(&second.await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_lets_the_next_one_run() {
    let door = door().await;
    let first = door.waiting_turn(say("work, wait").context("c")).await;
    let second = door.sending(say("work").context("c"));
    tokio::task::yield_now().await;
    door.cancel(&anonymous(), &first.id).await.expect("a cancelled task");
    assert_eq!(status(&second.await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_task_that_is_worked_on_is_refused_and_does_not_wait() {
    let door = door().await;
    let task = door.waiting_turn("work, wait").await;
    let error = door.refusal(say("more").task(&task)).await;
    assert!(error.to_string().contains("takes no message before it waits for one"), "{error}");
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_the_context_of_a_task_that_waits_for_input_is_a_new_task() {
    let door = door().await;
    let asked = door.task(say("ask").context("c")).await;
    let other = door.task(say("work").context("c")).await;
    assert_ne!(asked.id, other.id);
    assert_eq!(status(&door.get(&anonymous(), &asked.id).await.expect("a task")), "INPUT_REQUIRED");
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_message_that_waits_begins_at_once_with_its_task() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let began = Instant::now();
    let mut stream = door.stream(say("work, artifact two").context("c")).await.expect("a stream");
    assert_eq!(next(&mut stream).await.as_deref(), Some("task SUBMITTED"));
    assert_eq!((began.elapsed(), door.agent.turns()), (Duration::ZERO, 1));
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["WORKING", "artifact two", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_is_answered_at_once_with_its_task_and_its_turn_runs_later() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let began = Instant::now();
    let task = door.task(say("work, artifact two").context("c").at_once()).await;
    assert_eq!((began.elapsed(), status(&task).as_str()), (Duration::ZERO, "SUBMITTED"));
    let stored = door.get(&anonymous(), &task.id).await.expect("a stored task");
    assert_eq!((stored.status, stored.history.len()), (task.status, 0), "it has no turn yet");
    door.agent.go_on();
    door.turns_over().await;
    let done = door.get(&anonymous(), &task.id).await.expect("a task");
    assert_eq!((status(&done).as_str(), artifacts(&done).as_str(), done.history.len()), ("COMPLETED", "two", 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_a_task_of_its_context_is_answered_with_that_task() {
    let door = door().await;
    let asked = door.task(say("ask Which one?").context("c")).await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let task = door.task(say("artifact this").task(&asked).at_once()).await;
    assert_eq!((&task.id, status(&task).as_str()), (&asked.id, "INPUT_REQUIRED: Which one?"));
    let error = door.refusal(say("more").task(&asked)).await;
    assert!(matches!(error, A2aError::UnsupportedOperation { .. }), "one message at a time: {error}");
    door.agent.go_on();
    door.turns_over().await;
    let done = door.get(&anonymous(), &asked.id).await.expect("a task");
    assert_eq!((status(&done).as_str(), artifacts(&done).as_str()), ("COMPLETED", "this"));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_when_its_turn_comes_rejects_its_task() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let stream = door.stream(say("not this").context("c")).await.expect("a stream");
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["task SUBMITTED", "REJECTED: unsupported operation: not this"]);
    door.turns_over().await;
    assert_eq!((door.ended("rejected"), door.agent.turns()), (1, 1));
    assert_eq!(
        artifacts(&door.task(say("history").context("c")).await),
        "user: work, wait | scripted:  | user: history"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_message_that_waited_is_the_end_of_its_task() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let waiting = door.sending(say("answer hello").context("c"));
    tokio::task::yield_now().await;
    door.agent.go_on();
    assert_eq!(status(&waiting.await.expect("a task")), "COMPLETED: hello");
}

#[tokio::test(start_paused = true)]
async fn a_repetition_of_a_message_that_waits_gets_its_task() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let task = door.task(say("work").context("c").id("m").at_once()).await;
    assert_eq!(door.task(say("work").context("c").id("m").at_once()).await.id, task.id);
    door.agent.go_on();
    assert_eq!(status(&door.task(say("work").context("c").id("m")).await), "COMPLETED");
    assert_eq!(door.agent.turns(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_runs_also_when_its_client_goes_away() {
    let door = door_with(waiting_turns(1)).await;
    let first = door.sending(say("work, wait").context("c"));
    door.agent.waits().await;
    drop(door.stream(say("second").context("c")).await.expect("a stream"));
    let error = door.refusal(say("third").context("c")).await;
    assert!(matches!(error, A2aError::Overloaded { .. }), "its place is taken: {error}");
    door.agent.go_on();
    first.await.expect("a task");
    door.turns_over().await;
    assert_eq!(door.agent.heard(), ["work, wait", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_task_that_waits_is_cancelled_without_a_turn() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let waiting = door.task(say("work").context("c").at_once()).await;
    let canceled = door.cancel(&anonymous(), &waiting.id).await.expect("a cancelled task");
    assert_eq!((status(&canceled).as_str(), canceled.history.len()), ("CANCELED", 1));
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(door.agent.turns(), 1);
    assert_eq!(status(&door.task(say("work").context("c")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_ends_with_its_task_when_that_is_cancelled() {
    let door = door().await;
    let asked = door.task(say("ask").context("c")).await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let waiting = door.sending(say("more").task(&asked));
    tokio::task::yield_now().await;
    door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task");
    assert_eq!(status(&waiting.await.expect("a task")), "CANCELED");
    assert_eq!(door.agent.turns(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_in_memory_fails_when_the_server_stops() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let waiting = door.sending(say("work").context("c"));
    tokio::task::yield_now().await;
    door.handler.process.stop.cancel();
    let expected = "FAILED: The server is shutting down; send the message again.";
    assert_eq!(status(&waiting.await.expect("a task")), expected);
}
