//! Messages that come more than once.

use std::time::Duration;

use annex_protocol::A2aError;
use futures::future::join_all;

use crate::fixture::{Said, anonymous, door, say};
use crate::in_words::{fields, history, rest, status};

fn question(text: &str) -> Said {
    say(text).context("c").id("m")
}

#[tokio::test(start_paused = true)]
async fn the_same_message_twice_is_one_turn() {
    let door = door().await;
    let first = door.task(question("work, artifact hello")).await;
    assert_eq!(door.task(question("work, artifact hello")).await, first);
    assert_eq!((door.agent.turns(), door.received("started"), door.received("repeated")), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_same_message_many_times_at_once_is_one_turn() {
    let door = door().await;
    let tasks = join_all((0..20).map(|_| door.task(question("work, yield, artifact hello")))).await;
    assert!(tasks.iter().all(|task| task.id == tasks[0].id && status(task) == "COMPLETED"));
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_text_under_the_same_message_id_is_refused() {
    let door = door().await;
    door.task(question("work")).await;
    let error = door.refusal(question("other work")).await;
    assert_eq!(fields(&error), ["message.messageId"]);
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn other_metadata_under_the_same_message_id_is_refused() {
    let door = door().await;
    door.task(question("work")).await;
    let mut other = question("work");
    other.request.metadata = annex_protocol::Metadata::parse(r#"{"tone":"kind"}"#).expect("an object");
    assert_eq!(fields(&door.refusal(other).await), ["message.messageId"]);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_may_want_another_form_of_the_answer() {
    let door = door().await;
    let first = door.task(question("work")).await;
    let repeated = door.task(question("work").history_length(0).at_once()).await;
    assert_eq!((repeated.id, repeated.history.len()), (first.id, 0));
}

#[tokio::test(start_paused = true)]
async fn the_same_message_id_in_another_context_is_another_message() {
    let door = door().await;
    let one = door.task(question("work")).await;
    let other = door.task(say("work").context("d").id("m")).await;
    assert_ne!(one.id, other.id);
    assert_eq!(door.agent.turns(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_message_id_of_another_principal_is_another_message() {
    let door = door().await;
    let one = door.task(question("work").by("ada")).await;
    let other = door.task(question("work").by("bob")).await;
    assert_ne!(one.id, other.id);
    assert_eq!(door.agent.turns(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_principals_message_without_a_context_is_recognised() {
    let door = door().await;
    let first = door.task(say("work").id("m").by("ada")).await;
    assert_eq!(door.task(say("work").id("m").by("ada")).await, first);
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_principals_message_with_and_without_a_context_are_two_messages() {
    let door = door().await;
    let without = door.task(say("work").id("m").by("ada")).await;
    let with = door.task(question("work").by("ada")).await;
    assert_ne!(without.id, with.id);
}

#[tokio::test(start_paused = true)]
async fn anonymous_clients_without_a_context_never_share_a_message_id() {
    let door = door().await;
    let one = door.task(say("work").id("m")).await;
    let other = door.task(say("other work").id("m")).await;
    assert_ne!(one.id, other.id);
    assert_eq!(door.received("repeated"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_task_is_given_again() {
    let door = door().await;
    let first = door.message(question("answer hello")).await;
    assert_eq!(door.message(question("answer hello")).await, first);
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_question_many_times_at_once_is_answered_once() {
    let door = door().await;
    let answers = join_all((0..20).map(|_| door.message(question("yield, answer hello")))).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_waits_for_the_turn_that_runs() {
    let door = door().await;
    let first = door.sending(question("work, wait, artifact hello"));
    door.agent.waits().await;
    let second = door.sending(question("work, wait, artifact hello"));
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    door.agent.go_on();
    let (first, second) = (first.await.expect("a task"), second.await.expect("a task"));
    assert_eq!((status(&second).as_str(), first.id), ("COMPLETED", second.id));
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_that_wants_the_task_at_once_does_not_wait_for_the_turn() {
    let door = door().await;
    let first = door.waiting_turn(question("work, wait")).await;
    let repeated = door.task(question("work, wait").at_once()).await;
    assert_eq!(
        (repeated.id, status(&door.get(&anonymous(), &first.id).await.expect("a task"))),
        (first.id, "WORKING".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stream_follows_the_turn_that_runs() {
    let door = door().await;
    door.waiting_turn(question("work, wait, artifact hello")).await;
    let stream = door.stream(question("work, wait, artifact hello")).await.expect("a stream");
    door.agent.go_on();
    assert_eq!(rest(stream).await, ["task WORKING", "artifact hello", "COMPLETED"]);
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stream_of_a_finished_task_is_the_task() {
    let door = door().await;
    door.task(question("work")).await;
    assert_eq!(door.streamed(question("work")).await, ["task COMPLETED"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stream_of_an_answer_is_the_message() {
    let door = door().await;
    door.message(question("answer hello")).await;
    assert_eq!(door.streamed(question("answer hello")).await, ["message hello"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_continues_a_task_twice_is_one_turn() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let answer = || say("work").task(&asked).id("m");
    let first = door.task(answer()).await;
    assert_eq!(door.task(answer()).await, first);
    assert_eq!(history(&first), ["ask Which one?", "Which one?", "work"]);
    assert_eq!(door.agent.turns(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_of_the_first_message_gets_the_task_as_it_is_now() {
    let door = door().await;
    let asked = door.task(question("ask Which one?")).await;
    door.task(say("work").task(&asked)).await;
    let repeated = door.task(question("ask Which one?")).await;
    assert_eq!(
        (repeated.id, status(&door.get(&anonymous(), &asked.id).await.expect("a task"))),
        (asked.id, "COMPLETED".to_owned())
    );
    assert_eq!(door.agent.turns(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_agent_refused_may_come_again() {
    let door = door().await;
    for _ in 0..2 {
        door.refusal(question("refuse not now")).await;
    }
    assert_eq!((door.agent.turns(), door.received("refused")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_refused_before_its_turn_leaves_its_id_free() {
    let door = door().await;
    door.refusal(question("not this")).await;
    assert_eq!(status(&door.task(question("work")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_message_for_a_finished_task_is_refused_again() {
    let door = door().await;
    let done = door.task("work").await;
    for _ in 0..2 {
        let error = door.refusal(say("more").task(&done).id("m")).await;
        assert!(matches!(error, A2aError::UnsupportedOperation { .. }), "{error}");
    }
    assert_eq!(door.received("repeated"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_not_tried_again_by_a_repetition() {
    let door = door().await;
    let first = door.task(question("fail Too hard.")).await;
    assert_eq!(door.task(question("fail Too hard.")).await, first);
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_needs_no_permit() {
    let bounds = annex_operations::permits::TurnBounds {
        in_all: 1,
        per_caller: 1,
        waiting: 100,
        longest: Duration::from_secs(60),
    };
    let door = crate::fixture::door_with(crate::fixture::Settings { turns: bounds, ..Default::default() }).await;
    let first = door.waiting_turn(question("work, wait").by("ada")).await;
    assert_eq!(door.task(question("work, wait").by("ada").at_once()).await.id, first.id);
    assert!(matches!(door.refusal(say("work").by("ada")).await, A2aError::Overloaded { .. }));
}
