//! One turn at a time in each conversation.

use std::time::Duration;

use annex_protocol::A2aError;
use tokio::time::Instant;

use crate::fixture::{Settings, anonymous, door, door_with, say};
use crate::in_words::{artifacts, next, rest, status};

/// A handler in whose conversations so many turns may wait.
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
async fn the_stream_of_a_message_that_waits_is_opened_after_a_second() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let began = Instant::now();
    let mut stream = door.stream(say("work, artifact two").context("c")).await.expect("a stream");
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert_eq!(door.agent.turns(), 1);
    door.agent.go_on();
    assert_eq!(next(&mut stream).await.as_deref(), Some("task SUBMITTED"));
    assert_eq!(rest(stream).await, ["WORKING", "artifact two", "COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_message_that_waited_is_the_last_event_of_its_stream() {
    let door = door().await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let stream = door.stream(say("not this").context("c")).await.expect("a stream");
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["error: unsupported operation: not this"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drops_its_stream_gives_up_its_place_in_the_queue() {
    let door = door_with(waiting_turns(1)).await;
    let first = door.sending(say("work, wait").context("c"));
    door.agent.waits().await;
    drop(door.stream(say("second").context("c")).await.expect("a stream"));
    let third = door.sending(say("third").context("c"));
    tokio::task::yield_now().await;
    door.agent.go_on();
    first.await.expect("a task");
    third.await.expect("a task");
    assert_eq!(door.agent.heard(), ["work, wait", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_when_its_task_is_finished_is_refused() {
    let door = door().await;
    let asked = door.task(say("ask").context("c")).await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let (waiting, said) = (door.clone(), say("more").task(&asked));
    let waiting = tokio::spawn(async move { waiting.refusal(said).await });
    tokio::task::yield_now().await;
    door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task");
    door.agent.go_on();
    let error = waiting.await.expect("a refusal");
    assert!(error.to_string().contains("is in terminal state TASK_STATE_CANCELED"), "{error}");
}
