//! Limits on tasks, ids and the number of tasks.

use std::time::Duration;

use annex_conversation::{MemoryBounds, TaskLimits, WaitingBounds};
use annex_operations::permits::TurnBounds;
use annex_protocol::{A2aError, TaskId};
use tokio::time::Instant;

use crate::fixture::{Door, Settings, anonymous, by, door, door_with, one_millisecond, say};
use crate::in_words::{artifacts, fields, rest, status};

/// A handler whose tasks are small.
async fn small() -> Door {
    let limits = TaskLimits { bytes: 10_000, messages: 4, artifacts: 1 };
    door_with(Settings { limits, ..Settings::default() }).await
}

/// A handler that keeps few tasks.
async fn keeping(max_tasks: usize, per_owner: usize) -> Door {
    let waiting = WaitingBounds { age: Duration::MAX, per_owner, anonymous: per_owner };
    let store = MemoryBounds { max_tasks, max_task_bytes: 1 << 20, waiting, ..MemoryBounds::default() };
    door_with(Settings { store, ..Settings::default() }).await
}

#[tokio::test(start_paused = true)]
async fn a_message_that_no_task_can_hold_is_refused() {
    let door = small().await;
    let error = door.refusal(say(&"x".repeat(20_000)).context("c")).await;
    assert_eq!(fields(&error), ["message"]);
    assert_eq!(door.agent.turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_its_messages_fill_refuses_the_next_and_the_conversation_goes_on() {
    let door = small().await;
    let asked = door.task(say(&format!("ask, {}", "x".repeat(5_000))).context("c")).await;
    let error = door.refusal(say(&"x".repeat(5_000)).task(&asked)).await;
    assert!(error.to_string().contains("send the message without taskId to go on in the context"), "{error}");
    assert_eq!(status(&door.get(&anonymous(), &asked.id).await.expect("a task")), "INPUT_REQUIRED");
    assert_eq!(status(&door.task(say("work").context("c")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn the_history_of_a_task_has_a_bound() {
    let door = small().await;
    let asked = door.task("ask One?").await;
    let again = door.task(say("ask Two?").task(&asked)).await;
    let error = door.refusal(say("work").task(&again)).await;
    assert!(matches!(error, A2aError::UnsupportedOperation { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_adds_too_much_fails_its_task_and_what_fitted_stays() {
    let task = small().await.task("work, artifact fits, yield, large 20000").await;
    assert!(status(&task).starts_with("FAILED: the agent gave an invalid response: "), "{}", status(&task));
    assert_eq!(artifacts(&task), "fits");
}

#[tokio::test(start_paused = true)]
async fn a_first_event_that_is_too_large_fails_a_task_that_says_so() {
    let task = small().await.task("large 20000").await;
    assert!(status(&task).contains("bytes, and 10000 is the limit"), "{}", status(&task));
}

#[tokio::test(start_paused = true)]
async fn ids_of_a_message_are_bounded() {
    let door = door().await;
    let long = "x".repeat(257);
    assert_eq!(fields(&door.refusal(say("work").id(&long)).await), ["message.messageId"]);
    assert_eq!(fields(&door.refusal(say("work").context(&long)).await), ["message.contextId"]);
    let mut said = say("work");
    said.request.message.task_id = Some(TaskId::new(long.as_str()));
    assert_eq!(fields(&door.refusal(said).await), ["message.taskId"]);
    assert_eq!(status(&door.task(say("work").id(&"x".repeat(256))).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn references_to_other_tasks_are_bounded_in_number_and_length() {
    let door = door().await;
    let referring = |ids: Vec<TaskId>| {
        let mut said = say("work");
        said.request.message.reference_task_ids = ids;
        said
    };
    let many = vec![TaskId::new("t"); 65];
    assert_eq!(fields(&door.refusal(referring(many.clone())).await), ["message.referenceTaskIds"]);
    let long = vec![TaskId::new("t"), TaskId::new("x".repeat(257))];
    assert_eq!(fields(&door.refusal(referring(long)).await), ["message.referenceTaskIds[1]"]);
    assert_eq!(status(&door.task(referring(many[..64].to_vec())).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_reference_to_an_unknown_task_is_no_error() {
    let mut said = say("work");
    said.request.message.reference_task_ids = vec![TaskId::new("unknown")];
    assert_eq!(status(&door().await.task(said).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_finished_task_makes_room_for_a_new_one() {
    let door = keeping(2, 10).await;
    let first = door.task("work").await;
    one_millisecond().await;
    let second = door.task("work").await;
    one_millisecond().await;
    door.task("work").await;
    assert_eq!(door.get(&anonymous(), &first.id).await, Err(A2aError::TaskNotFound { task_id: first.id }));
    assert_eq!(status(&door.get(&anonymous(), &second.id).await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_task_that_made_room_is_a_new_one_when_it_comes_again() {
    let door = keeping(1, 10).await;
    let first = door.task(say("work").context("c").id("m")).await;
    door.task("work").await;
    assert_ne!(door.task(say("work").context("c").id("m")).await.id, first.id);
}

#[tokio::test(start_paused = true)]
async fn running_tasks_make_no_room_and_new_ones_are_refused() {
    let door = keeping(4, 10).await;
    for principal in ["ada", "bob", "cleo", "dan"] {
        door.waiting_turn(say("work, wait").by(principal)).await;
    }
    let error = door.refusal(say("work").by("eve")).await;
    assert!(matches!(error, A2aError::Overloaded { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn of_too_many_waiting_tasks_the_oldest_fails_with_the_reason() {
    let door = keeping(10, 1).await;
    let oldest = door.task(say("ask").by("ada")).await;
    let stream = door.subscribe(&by("ada"), &oldest.id).await.expect("a stream");
    one_millisecond().await;
    let latest = door.task(say("ask").by("ada")).await;
    let events = rest(stream).await;
    assert!(events[1].starts_with("FAILED: Too many of your tasks wait, and this one for longest;"), "{events:?}");
    assert_eq!(status(&door.get(&by("ada"), &latest.id).await.expect("a task")), "INPUT_REQUIRED");
}

#[tokio::test(start_paused = true)]
async fn waiting_tasks_of_one_caller_do_not_count_for_another() {
    let door = keeping(10, 1).await;
    let adas = door.task(say("ask").by("ada")).await;
    door.task(say("ask").by("bob")).await;
    assert_eq!(status(&door.get(&by("ada"), &adas.id).await.expect("a task")), "INPUT_REQUIRED");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_too_long_fails() {
    let turns = TurnBounds { in_all: 10, per_caller: 10, waiting: 100, longest: Duration::from_secs(30) };
    let door = door_with(Settings { turns, ..Settings::default() }).await;
    let began = Instant::now();
    let task = door.task("work, artifact part, sleep 60").await;
    assert_eq!((status(&task).as_str(), artifacts(&task).as_str()), ("FAILED: The agent took too long.", "part"));
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_turn_within_its_time_is_completed() {
    let turns = TurnBounds { in_all: 10, per_caller: 10, waiting: 100, longest: Duration::from_secs(30) };
    let door = door_with(Settings { turns, ..Settings::default() }).await;
    assert_eq!(status(&door.task("work, sleep 29").await), "COMPLETED");
}
