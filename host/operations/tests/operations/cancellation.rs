//! CancelTask.

use std::sync::Arc;

use annex_conversation::MemoryStore;
use annex_operations::process::Process;
use annex_protocol::{A2aError, TaskId, TaskState};

use crate::fixture::{Settings, anonymous, by, door, door_on, say};
use crate::in_words::{artifacts, fields, next, rest, status};

#[tokio::test(start_paused = true)]
async fn cancelling_stops_the_turn_and_the_task_is_cancelled() {
    let door = door().await;
    let task = door.waiting_turn("work, artifact part, wait, artifact more").await;
    let canceled = door.cancel(&anonymous(), &task.id).await.expect("a cancelled task");
    assert_eq!((status(&canceled).as_str(), artifacts(&canceled).as_str()), ("CANCELED", "part"));
    door.turns_over().await;
    assert_eq!((door.ended("canceled"), door.ended("completed")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn cancelling_answers_the_client_that_waits_for_the_turn() {
    let door = door().await;
    let sending = door.sending(say("work, wait").context("c").by("ada"));
    door.agent.waits().await;
    let task = door.listed(&by("ada")).await.remove(0);
    door.cancel(&by("ada"), &task.id).await.expect("a cancelled task");
    assert_eq!(status(&sending.await.expect("a task")), "CANCELED");
}

#[tokio::test(start_paused = true)]
async fn cancelling_is_the_last_event_of_every_stream() {
    let door = door().await;
    let task = door.waiting_turn("work, wait").await;
    let one = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    let other = door.subscribe(&anonymous(), &task.id).await.expect("a stream");
    door.cancel(&anonymous(), &task.id).await.expect("a cancelled task");
    for stream in [one, other] {
        assert_eq!(rest(stream).await, ["task WORKING", "CANCELED"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_input_is_cancelled_without_a_turn() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    assert_eq!(status(&door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task")), "CANCELED");
    assert_eq!(door.agent.turns(), 1);
    assert_eq!(status(&door.get(&anonymous(), &asked.id).await.expect("a task")), "CANCELED");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_wants_credentials_can_be_cancelled() {
    let door = door().await;
    let asked = door.task("credentials").await;
    let stream = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    assert_eq!(status(&door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task")), "CANCELED");
    assert_eq!(rest(stream).await, ["task AUTH_REQUIRED", "CANCELED"]);
    let error = door.refusal(say("work").task(&asked)).await;
    assert!(matches!(error, A2aError::UnsupportedOperation { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_question_of_a_cancelled_task_stays_in_its_history() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let canceled = door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task");
    assert_eq!(crate::in_words::history(&canceled), ["ask Which one?", "Which one?"]);
}

#[tokio::test(start_paused = true)]
async fn a_finished_task_is_not_cancelable() {
    let door = door().await;
    for (text, state) in
        [("work", TaskState::Completed), ("fail No.", TaskState::Failed), ("reject", TaskState::Rejected)]
    {
        let task = door.task(text).await;
        let error = door.cancel(&anonymous(), &task.id).await.expect_err("a finished task");
        assert_eq!(error, A2aError::TaskNotCancelable { task_id: task.id, state });
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_only_once() {
    let door = door().await;
    let asked = door.task("ask").await;
    door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task");
    let error = door.cancel(&anonymous(), &asked.id).await.expect_err("a cancelled task");
    assert_eq!(error, A2aError::TaskNotCancelable { task_id: asked.id, state: TaskState::Canceled });
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_takes_no_further_message() {
    let door = door().await;
    let asked = door.task("ask").await;
    door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task");
    let error = door.refusal(say("more").task(&asked)).await;
    assert!(error.to_string().contains("is in terminal state TASK_STATE_CANCELED"), "{error}");
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_cannot_be_cancelled() {
    let id = TaskId::new("unknown");
    let error = door().await.cancel(&anonymous(), &id).await.expect_err("no task");
    assert_eq!(error, A2aError::TaskNotFound { task_id: id });
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_principal_cannot_be_cancelled_and_goes_on() {
    let door = door().await;
    let task = door.waiting_turn(say("work, wait").by("ada")).await;
    let error = door.cancel(&by("bob"), &task.id).await.expect_err("another owner");
    assert_eq!(error, A2aError::TaskNotFound { task_id: task.id.clone() });
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(status(&door.get(&by("ada"), &task.id).await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn cancelling_needs_an_id() {
    let error = door().await.cancel(&anonymous(), &TaskId::default()).await.expect_err("no id");
    assert_eq!(fields(&error), ["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_a_further_message_is_cancelled_like_the_first() {
    let door = door().await;
    let asked = door.task("ask").await;
    door.waiting_turn(say("work, wait").task(&asked)).await;
    assert_eq!(status(&door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task")), "CANCELED");
}

#[tokio::test(start_paused = true)]
async fn two_cancellations_at_once_both_end_and_the_task_is_cancelled() {
    let door = door().await;
    let task = door.waiting_turn("work, wait").await;
    let call = anonymous();
    let (one, other) = tokio::join!(door.cancel(&call, &task.id), door.cancel(&call, &task.id));
    assert_eq!(status(&one.or(other).expect("a cancelled task")), "CANCELED");
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "CANCELED");
}

#[tokio::test(start_paused = true)]
async fn the_conversation_of_a_cancelled_turn_has_the_message_and_the_reason() {
    let door = door().await;
    let task = door.waiting_turn(say("work, wait").context("c")).await;
    door.cancel(&anonymous(), &task.id).await.expect("a cancelled task");
    let next = door.task(say("history").context("c")).await;
    assert_eq!(artifacts(&next), "user: work, wait | scripted: The turn ended without an answer. | user: history");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_waiting_task_hears_of_its_cancellation() {
    let door = door().await;
    let asked = door.task("ask").await;
    let mut stream = door.subscribe(&anonymous(), &asked.id).await.expect("a stream");
    assert_eq!(next(&mut stream).await.as_deref(), Some("task INPUT_REQUIRED"));
    door.cancel(&anonymous(), &asked.id).await.expect("a cancelled task");
    assert_eq!(rest(stream).await, ["CANCELED"]);
}

/// The client answers in this or in another process while the remote agent hears of the cancellation.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_finished_while_it_is_being_cancelled_stays_finished() {
    let remote = || Settings { agent_is_remote: true, ..Settings::default() };
    let store = Arc::new(MemoryStore::new(remote().store));
    let one = door_on(store.clone(), Process::with_memory(), remote()).await;
    let two = door_on(store, Process::with_memory(), remote()).await;
    for other in [&one, &two] {
        let asked = one.task("ask").await;
        let (door, id) = (one.clone(), asked.id.clone());
        let canceling = tokio::spawn(async move { door.cancel(&anonymous(), &id).await });
        one.agent.waits().await;
        assert_eq!(status(&other.task(say("work").task(&asked)).await), "COMPLETED");
        one.agent.go_on();
        let error = canceling.await.expect("no panic").expect_err("a finished task");
        assert_eq!(error, A2aError::TaskNotCancelable { task_id: asked.id.clone(), state: TaskState::Completed });
        assert_eq!(status(&one.get(&anonymous(), &asked.id).await.expect("a task")), "COMPLETED");
    }
}
