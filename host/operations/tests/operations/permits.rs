//! Permits: how many turns run at once.

use std::time::Duration;

use annex_operations::permits::TurnBounds;
use annex_protocol::A2aError;
use tokio::time::Instant;

use crate::fixture::{Door, Settings, anonymous, by, door_with, say};
use crate::in_words::status;

async fn limited(in_all: usize, per_caller: usize) -> Door {
    door_with(Settings { turns: bounds(in_all, per_caller), ..Settings::default() }).await
}

fn bounds(in_all: usize, per_caller: usize) -> TurnBounds {
    TurnBounds { in_all, per_caller, waiting: 100, longest: Duration::from_secs(600) }
}

fn overloaded(reason: &str) -> A2aError {
    A2aError::Overloaded { reason: reason.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_gets_no_permit_is_refused_after_a_second() {
    let door = limited(1, 1).await;
    door.waiting_turn("work, wait").await;
    let began = Instant::now();
    assert_eq!(door.refusal("work").await, overloaded("1 turns run already"));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert_eq!((door.agent.turns(), door.received("overloaded")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_a_permit_that_becomes_free() {
    let door = limited(1, 1).await;
    door.waiting_turn("work, wait").await;
    let sending = door.sending("work");
    tokio::task::yield_now().await;
    door.agent.go_on();
    assert_eq!(status(&sending.await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn as_many_messages_wait_for_a_permit_as_there_are_permits() {
    let door = limited(1, 1).await;
    door.waiting_turn("work, wait").await;
    let sending = door.sending("work");
    tokio::task::yield_now().await;
    let began = Instant::now();
    assert_eq!(door.refusal("work").await, overloaded("1 turns run already"));
    assert_eq!(began.elapsed(), Duration::ZERO);
    door.agent.go_on();
    sending.await.expect("a task");
}

#[tokio::test(start_paused = true)]
async fn a_caller_has_a_limit_of_its_own_and_is_refused_at_once() {
    let door = limited(10, 1).await;
    door.waiting_turn(say("work, wait").by("ada")).await;
    let began = Instant::now();
    assert_eq!(door.refusal(say("work").by("ada")).await, overloaded("1 turns of yours run already"));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(status(&door.task(say("work").by("bob")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn anonymous_clients_share_the_total_and_no_limit_of_a_caller() {
    let door = limited(3, 1).await;
    door.waiting_turn("work, wait").await;
    door.waiting_turn("work, wait").await;
    assert_eq!(status(&door.task("work").await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_turn_gives_its_permit_back_however_it_ends() {
    let door = limited(1, 1).await;
    for text in ["work", "fail No.", "ask", "answer hello", "reject", "break it"] {
        door.send(say(text).by("ada")).await.expect("an answer");
        door.turns_over().await;
        assert_eq!(door.handler.turn_limiter.running(), 0, "{text}");
    }
    for text in ["refuse no", "not this", "panic"] {
        door.refusal(say(text).by("ada")).await;
        assert_eq!(door.handler.turn_limiter.running(), 0, "{text}");
    }
    assert_eq!(status(&door.task(say("work").by("ada")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_gives_its_permit_back() {
    let door = limited(1, 1).await;
    let task = door.waiting_turn(say("work, wait").by("ada")).await;
    assert_eq!(door.handler.turn_limiter.running(), 1);
    door.cancel(&by("ada"), &task.id).await.expect("a cancelled task");
    door.turns_over().await;
    assert_eq!(door.handler.turn_limiter.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_in_the_queue_has_a_permit() {
    let door = limited(2, 2).await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let second = door.sending(say("work").context("c"));
    tokio::task::yield_now().await;
    assert_eq!(door.handler.turn_limiter.running(), 2);
    door.agent.go_on();
    second.await.expect("a task");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_keeps_its_permit_when_its_client_goes_away() {
    let door = limited(2, 2).await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let second = door.sending(say("work").context("c"));
    tokio::task::yield_now().await;
    second.abort();
    assert!(second.await.expect_err("an aborted request").is_cancelled());
    assert_eq!(door.handler.turn_limiter.running(), 2);
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!((door.handler.turn_limiter.running(), door.agent.turns()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_input_holds_no_permit() {
    let door = limited(1, 1).await;
    door.task(say("ask").by("ada")).await;
    door.turns_over().await;
    assert_eq!(status(&door.task(say("work").by("ada")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn reading_and_cancelling_need_no_permit() {
    let door = limited(1, 1).await;
    let task = door.waiting_turn("work, wait").await;
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "WORKING");
    assert_eq!(status(&door.cancel(&anonymous(), &task.id).await.expect("a cancelled task")), "CANCELED");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_permit_leaves_its_id_free() {
    let door = limited(1, 1).await;
    door.waiting_turn("work, wait").await;
    door.refusal(say("work").context("c").id("m")).await;
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(status(&door.task(say("other work").context("c").id("m")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn other_bounds_apply_to_the_next_message() {
    let door = limited(1, 1).await;
    door.waiting_turn("work, wait").await;
    door.handler.turn_limiter.set_bounds(bounds(2, 1));
    assert_eq!(status(&door.task("work").await), "COMPLETED");
    door.handler.turn_limiter.set_bounds(bounds(1, 1));
    assert_eq!(door.refusal("work").await, overloaded("1 turns run already"));
}
