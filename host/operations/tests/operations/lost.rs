//! Messages whose client is gone, and tasks whose turn is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annex_conversation::{
    Append, Arrival, Beginning, Conversation, ConversationKey, ConversationStore, Departure, Entry, LostTurn, Note,
    Position, StateDelta, Submission,
};
use annex_operations::on_lost_turn::OnLostTurn;
use annex_protocol::{
    ContextId, Message, StreamResponse, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent::NAME;
use crate::fixture::{Door, Settings, anonymous, door_in_file, door_with, say};
use crate::in_words::{rest, status};

/// Drops `work` after it was polled so many times, when all that it waits for is under way. `None` if it was not ready by
/// then.
async fn for_steps<F: Future>(work: F, steps: usize) -> Option<F::Output> {
    let mut work = Box::pin(work);
    let mut polls = 0;
    let ended = poll_fn(|context| {
        polls += 1;
        match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls < steps => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    });
    let ended = ended.await;
    for _ in 0..4 {
        yield_now().await;
    }
    ended
}

/// The conversation of an anonymous client.
fn key(context: &str) -> ConversationKey {
    ConversationKey::of(NAME, &anonymous().owner, &ContextId::new(context))
}

/// Enters a turn of another process.
async fn enter(door: &Door, context: &str, submission: Submission) -> Arrival {
    let beginning = Beginning { task: None, limits: Settings::default().limits, history: 0 };
    let store: Arc<dyn ConversationStore> = door.store.clone();
    Conversation::enter(&store, key(context), submission, beginning).await.expect("a place")
}

#[tokio::test]
async fn a_client_may_hang_up_at_any_moment_and_send_its_message_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let door = door_in_file(&folder.path().join("conversations.db")).await;
    for steps in 1.. {
        let said = say("work, artifact done").by("ada").context(&format!("c-{steps}")).id(&format!("m-{steps}"));
        let answered = for_steps(door.send(said.clone()), steps).await;
        let again = timeout(Duration::from_secs(60), door.task(said)).await;
        assert_eq!(again.map(|task| status(&task)).as_deref(), Ok("COMPLETED"), "after {steps} steps");
        if answered.is_some() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_neither_a_turn_nor_an_end_fails_when_it_is_old() {
    let mut settings = Settings::default();
    settings.store.waiting.age = Duration::from_secs(60);
    let door = door_with(settings).await;
    for state in [TaskState::Submitted, TaskState::Working, TaskState::InputRequired] {
        let status = TaskStatus { state, message: None, timestamp: Some(Timestamp::from_millis(1_000)) };
        let (id, context_id) = (state.name().into(), ContextId::new("c"));
        let task = Task { id, context_id, status, ..Task::default() };
        let entries = [StreamResponse::Task(task.clone()).into()];
        let (at, task) = (Position::of_task(task.id.clone(), 0), task.into());
        let append = Append { entries: &entries, task: Some(&task), ..Append::default() };
        door.store.append(&key("c"), &at, append).await.expect("a stored task");
    }
    let (stop, tasks) = (CancellationToken::new(), door.handler.process.tasks.clone());
    tokio::select! {
        () = tasks.keep_house(&door.handler.process.views.keys, stop.clone()) => {}
        // The first sweep comes at once.
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    for task in [TaskState::Submitted, TaskState::Working, TaskState::InputRequired] {
        let task = door.get(&anonymous(), &task.name().into()).await.expect("a task");
        assert!(status(&task).starts_with("FAILED: The task waited for too long"), "{}", status(&task));
    }
}

/// The process has stored the last event of its agent, and ends before its turn leaves the queue.
#[tokio::test(start_paused = true)]
async fn a_lost_turn_whose_task_is_finished_is_not_run_again() {
    let door = door_with(Settings { on_lost_turn: OnLostTurn::Rerun, ..Settings::default() }).await;
    for state in [TaskState::Completed, TaskState::Working] {
        let (task, context_id) = (TaskId::new(state.name()), ContextId::new(state.name()));
        let resume = Some(r#"{"on_lost":"rerun"}"#.into());
        let submission = Submission { resume, ..Submission::of_process("two".into(), task.clone()) };
        let opens = Some(submission.since);
        let Arrival::Runs(turn) = enter(&door, state.name(), submission).await else { panic!("another turn runs") };
        let hello = Entry::said_by_user(Message::user_text("work"), task.clone(), StateDelta::new(), opens);
        let status = TaskStatus { state, message: None, timestamp: Some(Timestamp::now()) };
        let update = TaskStatusUpdateEvent { task_id: task, context_id, status, ..TaskStatusUpdateEvent::default() };
        turn.append([hello, StreamResponse::StatusUpdate(update).into()]).await.expect("stored entries");
        turn.leave(Departure::HandedOver { has_begun: true }).await.expect("a turn without a process");
    }
    for lost in door.handler.process.tasks.take_lost().await.expect("lost turns") {
        door.handler.go_on_with(lost);
    }
    for state in [TaskState::Completed, TaskState::Working] {
        let next = door.task(say("next").context(state.name())).await;
        assert_eq!(status(&next), "COMPLETED", "its turn is over");
        let task = door.get(&anonymous(), &state.name().into()).await.expect("a task");
        assert_eq!(status(&task), "COMPLETED");
    }
    let again = door.agent.heard().into_iter().filter(|text| text == "work").count();
    assert_eq!(again, 1, "the one that was not finished");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_refusal_is_too_large_for_its_task_is_refused_in_short() {
    let mut settings = Settings::default();
    settings.limits.bytes = 48 << 10;
    let door = door_with(settings).await;
    door.waiting_turn(say("work, wait").context("c")).await;
    let refused = door.sending(say("refuse at length").context("c"));
    yield_now().await;
    door.agent.go_on();
    let refused = refused.await.expect("a task");
    assert_eq!(status(&refused), "REJECTED: The message was refused, and the reason cannot be stored with it.");
    assert_eq!(status(&door.task(say("work").context("c")).await), "COMPLETED", "the queue goes on");
}

/// Each process that takes the message over ends before the turn has begun.
#[tokio::test(start_paused = true)]
async fn a_message_that_waits_fails_when_it_was_taken_over_too_often() {
    let door = door_with(Settings::default()).await;
    let Arrival::Runs(_first) = enter(&door, "c", Submission::of_process("two".into(), "t-1".into())).await else {
        panic!("another turn runs")
    };
    let message = serde_json::to_string(&Message::user_text("work")).expect("JSON");
    let request = format!(r#"{{"requested":[],"message":{message},"metadata":{{}},"accepted_output_modes":[]}}"#);
    let submission = Submission::of_process("two".into(), "t-2".into());
    let waits = Submission { request: Some(request.into()), max_waiting: 1, ..submission };
    let Arrival::Waits(waits) = enter(&door, "c", waits).await else { panic!("no other turn runs") };
    let mut fence = waits.fence().clone();
    let lost = loop {
        door.store.leave(&key("c"), &fence, Departure::HandedOver { has_begun: true }).await.expect("a departure");
        let lost = door.handler.process.tasks.take_lost().await.expect("a lost turn").remove(0);
        if lost.attempts == LostTurn::MAX_TAKES {
            break lost;
        }
        fence = lost.fence;
    };
    door.handler.go_on_with(lost);
    let stream = door.subscribe(&anonymous(), &"t-2".into()).await.expect("a stream");
    let stopped = "FAILED: The server stopped while the task ran; send the message again.";
    assert_eq!(rest(stream).await, ["task SUBMITTED", stopped]);
}

#[tokio::test]
async fn a_lost_turn_whose_task_cannot_be_read_stays_with_its_process_and_ends_once_it_can_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("conversations.db");
    let door = door_in_file(&file).await;
    let tasks = &door.handler.process.tasks;
    let (task, context_id) = (TaskId::new("t-1"), ContextId::new("c"));
    let submission = Submission::of_process("one".into(), task.clone());
    let opens = Some(submission.since);
    let Arrival::Runs(turn) = enter(&door, "c", submission).await else { panic!("another turn runs") };
    let hello = Entry::said_by_user(Message::user_text("work"), task.clone(), StateDelta::new(), opens);
    let working = TaskStatus { state: TaskState::Working, message: None, timestamp: Some(Timestamp::now()) };
    let task_id = task.clone();
    let update = TaskStatusUpdateEvent { task_id, context_id, status: working, ..TaskStatusUpdateEvent::default() };
    turn.append([hello, StreamResponse::StatusUpdate(update).into()]).await.expect("stored entries");
    turn.leave(Departure::HandedOver { has_begun: true }).await.expect("a turn without a process");

    let database = rusqlite::Connection::open(&file).expect("a database");
    let stored: String = database.query_row("SELECT json FROM task", [], |row| row.get(0)).expect("a stored task");
    let write = |json: &str| database.execute("UPDATE task SET json = ?1", [json]).expect("a changed task");
    write("{");
    let lost = tasks.take_lost().await.expect("a lost turn").remove(0);
    tasks.end_lost_turn(&lost).await;
    assert!(tasks.take_lost().await.expect("lost turns").is_empty(), "the turn was handed on");
    write(&stored);
    let fails = async {
        while !status(&door.get(&anonymous(), &task).await.expect("a task")).starts_with("FAILED") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), fails).await.expect("a task that fails");
}

/// Lets the task wait with a question of an extension, as a turn of another process does.
async fn ask(door: &Door, task: &Task, number: u64) {
    let interruption = format!(r#"{{"by":"https://example.com/asks","requested":[],"number":{number}}}"#);
    let pins = format!(r#"{{"versions":[],"interruption":{interruption}}}"#);
    let stored = door.store.task(&task.id).await.expect("a store that answers").expect("a stored task");
    let entries = [Entry::Note(Note::Pins(pins.into()))];
    let (at, task) = (Position::of_task(task.id.clone(), stored.number), stored.decode().expect("a task"));
    let task = task.with(&entries);
    let append = Append { entries: &entries, task: Some(&task), ..Append::default() };
    door.store.append(&stored.key, &at, append).await.expect("a stored question");
}

/// The message waits for a permit while the task asks the next question.
#[tokio::test(start_paused = true)]
async fn a_message_does_not_answer_a_question_that_its_task_has_asked_since() {
    let mut settings = Settings::default();
    settings.turns.in_all = 1;
    let door = door_with(settings).await;
    let task = door.task(say("ask").context("c")).await;
    door.turns_over().await;
    ask(&door, &task, 1).await;
    door.waiting_turn(say("work, wait").context("d")).await;
    let (other, said) = (door.clone(), say("work").task(&task));
    let late = tokio::spawn(async move { other.refusal(said).await });
    for _ in 0..8 {
        yield_now().await;
    }
    ask(&door, &task, 2).await;
    door.agent.go_on();
    let error = late.await.expect("an error").to_string();
    assert!(error.contains("has asked something else"), "{error}");
    door.turns_over().await;
    assert_eq!(door.agent.heard(), ["ask", "work, wait"]);
    assert_eq!(status(&door.task(say("work").task(&task)).await), "COMPLETED", "the message is sent again");
}

/// Another process has accepted the message. Its stored data has the question that the task had then.
#[tokio::test(start_paused = true)]
async fn a_message_that_was_taken_over_answers_only_the_question_that_it_was_accepted_for() {
    for (asked, expected) in [(r#","asked":1"#, "INPUT_REQUIRED"), (r#","asked":2"#, "COMPLETED"), ("", "COMPLETED")] {
        let door = door_with(Settings::default()).await;
        let task = door.task(say("ask").context("c")).await;
        door.turns_over().await;
        ask(&door, &task, 2).await;
        let Arrival::Runs(first) = enter(&door, "c", Submission::of_process("two".into(), "t-1".into())).await else {
            panic!("another turn runs")
        };
        let message = serde_json::to_string(&Message::user_text("work")).expect("JSON");
        let more = format!(r#""metadata":{{}},"accepted_output_modes":[]{asked}"#);
        let request = format!(r#"{{"requested":[],"message":{message},{more}}}"#);
        let submission = Submission::of_process("two".into(), task.id.clone());
        let waits = Submission { request: Some(request.into()), max_waiting: 1, ..submission };
        let Arrival::Waits(waits) = enter(&door, "c", waits).await else { panic!("no other turn runs") };
        let departure = Departure::HandedOver { has_begun: false };
        door.store.leave(&key("c"), waits.fence(), departure).await.expect("a departure");
        let lost = door.handler.process.tasks.take_lost().await.expect("a lost turn").remove(0);
        door.handler.go_on_with(lost);
        first.leave(Departure::Refused).await.expect("a departure");
        door.turns_over().await;
        let task = door.get(&anonymous(), &task.id).await.expect("a task");
        let status = status(&task);
        assert!(status.starts_with(expected), "{asked}: {status}");
        assert_eq!(status.contains("has asked something else"), expected == "INPUT_REQUIRED", "{asked}: {status}");
        assert_eq!(door.agent.turns(), if expected == "COMPLETED" { 2 } else { 1 }, "{asked}");
    }
}
