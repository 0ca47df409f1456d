//! SendMessage: the answer, the task and the turn behind it.

use annex_operations::answer::Sent;
use annex_protocol::{Role, TaskState};

use crate::fixture::{anonymous, door, say};
use crate::in_words::{artifacts, history, status};

#[tokio::test(start_paused = true)]
async fn a_task_is_completed_when_the_agent_returns() {
    let door = door().await;
    let task = door.task("work, artifact hello").await;
    assert_eq!((status(&task).as_str(), artifacts(&task).as_str()), ("COMPLETED", "hello"));
    assert_eq!(door.agent.turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_sends_nothing_leaves_a_completed_task_without_artifacts() {
    let task = door().await.task("nothing").await;
    assert_eq!(status(&task), "COMPLETED");
    assert!(task.artifacts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_history_of_a_new_task_is_the_message_with_its_ids() {
    let task = door().await.task("work").await;
    assert_eq!(history(&task), ["work"]);
    let message = &task.history[0];
    assert_eq!((message.context_id.as_ref(), message.task_id.as_ref()), (Some(&task.context_id), Some(&task.id)));
    assert_eq!(message.role, Role::User);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_context_gets_a_context_of_its_own() {
    let door = door().await;
    let (one, other) = (door.task("work").await, door.task("work").await);
    assert_ne!(one.context_id, other.context_id);
    assert_ne!(one.id, other.id);
}

#[tokio::test(start_paused = true)]
async fn a_message_gets_a_new_task_in_the_context_that_it_names() {
    let door = door().await;
    let one = door.task(say("work").context("c")).await;
    let other = door.task(say("work").context("c")).await;
    assert_eq!((one.context_id.as_str(), other.context_id.as_str()), ("c", "c"));
    assert_ne!(one.id, other.id);
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_answer_with_a_message_and_then_there_is_no_task() {
    let door = door().await;
    let answer = door.message(say("answer hello").context("c")).await;
    assert_eq!((answer.text().as_str(), answer.role), ("hello", Role::Agent));
    assert_eq!(answer.context_id.expect("a context").as_str(), "c");
    assert!(answer.task_id.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_sends_after_its_answer_is_ignored() {
    let door = door().await;
    let answer = door.message("answer hello, work, artifact more").await;
    assert_eq!(answer.text(), "hello");
    door.turns_over().await;
    assert_eq!(door.received("started"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_after_the_task_has_begun_fails_the_task() {
    let task = door().await.task("work, answer hello").await;
    assert_eq!(
        status(&task),
        "FAILED: the agent gave an invalid response: the agent sent a message after its task had begun"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_agent_fails_the_task_with_its_text() {
    let task = door().await.task("work, artifact part, fail The disk is full.").await;
    assert_eq!((status(&task).as_str(), artifacts(&task).as_str()), ("FAILED: The disk is full.", "part"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_fail_before_its_first_event() {
    let task = door().await.task("fail Too hard.").await;
    assert_eq!(status(&task), "FAILED: Too hard.");
}

#[tokio::test(start_paused = true)]
async fn an_internal_failure_shows_an_error_id_and_not_its_cause() {
    let task = door().await.task("work, break the password is 1234").await;
    let status = status(&task);
    assert!(status.starts_with("FAILED: The agent failed; the server's log has the details under "), "{status}");
    assert!(!status.contains("1234"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_fails_its_task_and_the_next_turn_runs() {
    let door = door().await;
    let broken = door.task(say("work, wait, panic").context("c").at_once()).await;
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(status(&door.get(&anonymous(), &broken.id).await.expect("a task")), "FAILED: The agent broke off.");
    assert_eq!(status(&door.task(say("work").context("c")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_before_its_first_event_is_an_internal_error() {
    let door = door().await;
    let error = door.refusal("panic").await;
    assert!(error.to_string().starts_with("internal error"), "{error}");
    assert_eq!(door.received("failed"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_agent_without_an_event_is_the_error_of_the_client() {
    let door = door().await;
    assert_eq!(door.refusal("refuse too late").await.to_string(), "unsupported operation: too late");
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_end_its_task_as_rejected() {
    assert_eq!(status(&door().await.task("reject Not for me.").await), "REJECTED: Not for me.");
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_sends_after_a_final_status_is_ignored() {
    let task = door().await.task("complete done, artifact more, work").await;
    assert_eq!((status(&task).as_str(), artifacts(&task).as_str()), ("COMPLETED: done", ""));
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_a_final_status_does_not_change_the_task() {
    let door = door().await;
    let task = door.task("complete done, wait, fail Too late.").await;
    assert_eq!(status(&task), "COMPLETED: done");
    door.turns_over().await;
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "COMPLETED: done");
}

#[tokio::test(start_paused = true)]
async fn an_input_request_answers_the_client_and_leaves_the_task_open() {
    let door = door().await;
    let task = door.task("work, ask Which one?").await;
    assert_eq!(status(&task), "INPUT_REQUIRED: Which one?");
    assert_eq!(door.get(&anonymous(), &task.id).await.expect("a task").status.state, TaskState::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn the_next_message_continues_the_task_that_waits_for_input() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let done = door.task(say("work, artifact this one").task(&asked)).await;
    assert_eq!((&done.id, &done.context_id), (&asked.id, &asked.context_id));
    assert_eq!((status(&done).as_str(), artifacts(&done).as_str()), ("COMPLETED", "this one"));
    assert_eq!(history(&done), ["ask Which one?", "Which one?", "work, artifact this one"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_wants_credentials_goes_on_with_the_next_message() {
    let door = door().await;
    let asked = door.task("credentials Log in first.").await;
    assert_eq!(status(&asked), "AUTH_REQUIRED: Log in first.");
    assert_eq!(status(&door.task(say("work").task(&asked)).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_message_may_name_the_context_of_its_task() {
    let door = door().await;
    let asked = door.task(say("ask").context("c")).await;
    assert_eq!(status(&door.task(say("work").task(&asked).context("c")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_refuses_the_next_message_leaves_its_task_waiting_with_the_reason() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let task = door.task(say("refuse not that one").task(&asked)).await;
    assert_eq!(status(&task), "INPUT_REQUIRED: unsupported operation: not that one");
    assert_eq!(status(&door.task(say("work").task(&asked)).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_answer_with_a_message_to_a_task_that_waits() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    assert_eq!(door.message(say("answer never mind").task(&asked)).await.text(), "never mind");
    door.turns_over().await;
    assert_eq!(status(&door.get(&anonymous(), &asked.id).await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn returning_immediately_answers_while_the_turn_runs() {
    let door = door().await;
    let task = door.waiting_turn("work, wait, artifact hello").await;
    assert_eq!(status(&task), "SUBMITTED");
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "WORKING");
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(artifacts(&door.get(&anonymous(), &task.id).await.expect("a task")), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_when_its_client_goes_away() {
    let door = door().await;
    let sending = door.sending(say("work, wait, artifact hello").context("c"));
    door.agent.waits().await;
    sending.abort();
    assert!(sending.await.expect_err("an aborted request").is_cancelled());
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(door.ended("completed"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_begun_without_an_event_has_a_task_that_is_submitted() {
    let door = door().await;
    let task = door.waiting_turn("begun, wait, work").await;
    assert_eq!(status(&task), "SUBMITTED");
    door.agent.go_on();
    door.turns_over().await;
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn the_history_of_the_answer_is_as_long_as_the_client_wants() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    let done = door.task(say("work").task(&asked).history_length(1)).await;
    assert_eq!(history(&done), ["work"]);
    assert!(door.task(say("work").history_length(0)).await.history.is_empty());
}

#[tokio::test(start_paused = true)]
async fn further_parts_of_an_artifact_are_appended_to_it() {
    let task = door().await.task("artifact one, append two").await;
    assert_eq!(artifacts(&task), "one\ntwo");
}

#[tokio::test(start_paused = true)]
async fn an_artifact_that_is_sent_again_replaces_the_one_before() {
    let task = door().await.task("artifact one, artifact two").await;
    assert_eq!(artifacts(&task), "two");
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_encoded_as_a_task_or_as_a_message() {
    let door = door().await;
    let task = door.send("work").await.expect("a task");
    assert!(matches!(task, Sent::Task(_)));
    assert!(task.json().expect("JSON").starts_with(r#"{"task":{"id":"#));
    let message = door.send("answer hello").await.expect("a message");
    assert!(message.json().expect("JSON").starts_with(r#"{"message":{"messageId":"#));
}

#[tokio::test(start_paused = true)]
async fn messages_and_turns_are_counted_by_how_they_ended() {
    let door = door().await;
    for text in ["work", "answer hello", "fail No.", "ask Which?", "reject No."] {
        door.send(text).await.expect("an answer");
    }
    door.turns_over().await;
    assert_eq!(door.received("started"), 5);
    for end in ["completed", "taskless", "failed", "interrupted", "rejected"] {
        assert_eq!(door.ended(end), 1, "{end}");
    }
    assert_eq!((door.ended("canceled"), door.ended("lost")), (0, 0));
}
