//! Turns whose process is gone, or has handed them over: each goes on in one other process, or is ended there.

use annex_conversation::{
    Append, AppendError, Arrival, Conversation, ConversationStore, Departure, Entrance, Fence, LostTurn, Position,
    Submission, TaskSnapshot, Window, end_lost_turn,
};
use annex_protocol::{Message, TaskState, Timestamp};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use std::sync::Arc;

use crate::backend::on_postgres;
use crate::support::{Backend, Says, Store, arrive, beginning, event, events, find, key, open, submission, update};

on_every_store!(
    a_turn_goes_on_in_one_other_process,
    a_process_that_has_lost_its_turn_writes_nothing_more,
    a_turn_that_waits_goes_on_in_its_order,
    a_turn_that_waits_is_run_by_its_request_and_one_that_has_begun_by_its_other_text,
    a_lost_turn_keeps_the_next_one_waiting,
    a_turn_that_promised_nothing_is_forgotten,
    a_turn_that_is_handed_over_is_taken_at_once,
    a_turn_is_begun_twice_at_most,
    a_turn_that_was_not_begun_here_does_not_count,
    a_turn_that_waits_is_taken_over_a_few_times_at_most,
    a_turn_without_a_text_is_ended,
    a_lost_turn_ends_with_an_event_and_a_failed_task,
    a_lost_turn_that_was_to_be_cancelled_is_cancelled,
    a_turn_is_taken_from_a_process_that_does_not_answer,
    a_process_without_a_lease_takes_nothing,
    whoever_runs_a_turn_hears_that_it_was_taken,
    a_running_turn_that_is_dropped_is_left_to_others,
    a_waiting_turn_that_is_dropped_is_left_to_others,
    a_refused_turn_that_has_begun_is_left_to_others,
    a_turn_that_its_queue_has_lost_is_taken_all_the_same,
    a_turn_that_is_taken_over_does_not_bring_a_deleted_conversation_back,
);

/// A turn of a process that has stored a message of the user.
async fn begun(store: &Store, path: &str, submission: Submission) -> Fence {
    let task = submission.task.clone();
    let Entrance::Runs(fence, _) = store.enter(&key(path), submission.clone(), Window::NONE).await.unwrap() else {
        panic!("another turn runs in {path}")
    };
    let since = Timestamp::from_millis(1);
    let message = annex_conversation::Entry::said_by_user(
        Message::user_text("Hello"),
        task.clone(),
        annex_conversation::StateDelta::new(),
        Some(since),
    );
    let entries = [message];
    let snapshot = TaskSnapshot::submitted(task.clone(), key(path).context.clone(), since).with(&entries);
    let submission = Some(&submission);
    let append = Append { by: Some(&fence), submission, entries: &entries, task: Some(&snapshot), ..Append::default() };
    store.append(&key(path), &Position::of_task(task, 0), append).await.unwrap();
    fence
}

async fn lost(store: &Store, by: &str) -> Vec<LostTurn> {
    store.take_lost(&by.into(), 10).await.unwrap()
}

async fn state(store: &Store, task: &str) -> TaskState {
    store.task(&task.into()).await.unwrap().unwrap().decode().unwrap().state()
}

/// Says something as a turn that goes on.
async fn go_on(store: &Store, fence: &Fence, task: &str, id: &str) -> Result<u64, AppendError> {
    let stored = store.task(&task.into()).await.unwrap().unwrap();
    let entries = [event(id, "{}").into()];
    let snapshot = stored.decode().unwrap();
    let append = Append { by: Some(fence), entries: &entries, task: Some(&snapshot), ..Append::default() };
    store.append(&stored.key, &Position::of_task(task.into(), stored.number), append).await.map(|it| it.number)
}

async fn a_turn_goes_on_in_one_other_process(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    assert!(lost(&store, "two").await.is_empty(), "its process is alive");
    backend.end_lease("one").await;
    let taken = lost(&store, "two").await;
    let [turn] = taken.as_slice() else { panic!("{taken:?}") };
    assert!(turn.has_begun && turn.may_go_on() && turn.resume.as_deref() == Some("again"));
    assert_eq!((&turn.key, turn.task.as_str(), turn.attempts), (&key("s"), "t-1", 1));
    assert!(lost(&store, "three").await.is_empty(), "it is taken");
    go_on(&store, &turn.fence, "t-1", "answer").await.unwrap();
    assert_eq!(events(&store, "s").await.len(), 2);
}

async fn a_process_that_has_lost_its_turn_writes_nothing_more(backend: Backend) {
    let store = backend.store().await;
    let fence = begun(&store, "s", submission("one", "t-1")).await;
    backend.end_lease("one").await;
    assert!(matches!(go_on(&store, &fence, "t-1", "late").await, Err(AppendError::Fenced)));
    let turn = lost(&store, "two").await.remove(0);
    assert!(matches!(go_on(&store, &fence, "t-1", "later").await, Err(AppendError::Fenced)));
    store.leave(&key("s"), &fence, Departure::Refused).await.unwrap();
    go_on(&store, &turn.fence, "t-1", "answer").await.unwrap();
}

async fn a_turn_that_waits_goes_on_in_its_order(backend: Backend) {
    let store = backend.store().await;
    let first = begun(&store, "s", submission("two", "t-1")).await;
    for (task, replica) in [("t-2", "one"), ("t-3", "two")] {
        let entered = store.enter(&key("s"), submission(replica, task), Window::NONE).await.unwrap();
        assert!(matches!(entered, Entrance::Waits(_)));
    }
    backend.end_lease("one").await;
    let turn = lost(&store, "two").await.remove(0);
    assert!(!turn.has_begun && turn.may_go_on() && turn.attempts == 0, "{turn:?}");
    let any: Arc<dyn ConversationStore> = store.clone();
    let queued = Conversation::resume(&any, key("s"), (turn.fence, submission("two", "t-2")), beginning(0));
    let before = store.task(&"t-1".into()).await.unwrap().unwrap();
    let done = [update(&before.decode().unwrap(), TaskState::Completed)];
    let snapshot = before.decode().unwrap().with(&done);
    let append = Append { by: Some(&first), entries: &done, task: Some(&snapshot), ends: true, ..Append::default() };
    store.append(&key("s"), &Position::of_task("t-1".into(), 1), append).await.unwrap();
    let second = queued.runs().await.unwrap();
    second.say(event("second", "{}")).await.unwrap();
    second.close().await;
}

async fn a_turn_that_waits_is_run_by_its_request_and_one_that_has_begun_by_its_other_text(backend: Backend) {
    let store = backend.store().await;
    let of_task = |task| Submission {
        request: Some("the request".into()),
        resume: Some("what it was asked for".into()),
        ..submission("one", task)
    };
    begun(&store, "s", of_task("t-1")).await;
    let waits = arrive(&store, "s", of_task("t-2")).await.unwrap();
    assert!(matches!(waits, Arrival::Waits(_)));
    backend.end_lease("one").await;
    let mut turns = lost(&store, "two").await;
    turns.sort_by(|one, other| one.task.cmp(&other.task));
    let texts: Vec<_> = turns.iter().map(|turn| turn.resume.as_deref()).collect();
    assert_eq!(texts, [Some("what it was asked for"), Some("the request")]);
}

async fn a_lost_turn_keeps_the_next_one_waiting(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    let Arrival::Waits(next) = arrive(&store, "s", submission("two", "t-2")).await.unwrap() else {
        panic!("another turn runs")
    };
    backend.end_lease("one").await;
    let turn = lost(&store, "two").await.remove(0);
    end_lost_turn(&*store, &turn, "gone").await.unwrap();
    let next = next.runs().await.unwrap();
    let authors: Vec<_> = next.history(9).await.unwrap().iter().map(|event| event.author.to_string()).collect();
    assert_eq!(authors, ["user", "-"], "the lost turn has its end before the next one begins");
}

async fn a_turn_that_promised_nothing_is_forgotten(backend: Backend) {
    let store = backend.store().await;
    let entered = store.enter(&key("s"), submission("one", "t-1"), Window::NONE).await.unwrap();
    assert!(matches!(entered, Entrance::Runs(..)));
    let Arrival::Waits(next) = arrive(&store, "s", submission("two", "t-2")).await.unwrap() else {
        panic!("another turn runs")
    };
    backend.end_lease("one").await;
    assert!(lost(&store, "two").await.is_empty());
    assert!(store.task(&"t-1".into()).await.unwrap().is_none());
    next.runs().await.unwrap();
}

async fn a_turn_that_is_handed_over_is_taken_at_once(backend: Backend) {
    let store = backend.store().await;
    let fence = begun(&store, "s", submission("one", "t-1")).await;
    store.leave(&key("s"), &fence, Departure::HandedOver { has_begun: true }).await.unwrap();
    assert!(matches!(go_on(&store, &fence, "t-1", "late").await, Err(AppendError::Fenced)));
    let turn = lost(&store, "two").await.remove(0);
    assert!(turn.may_go_on() && turn.attempts == 1, "{turn:?}");
}

async fn a_turn_is_begun_twice_at_most(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    for (gone, next, may_go_on) in [("one", "two", true), ("two", "three", false)] {
        backend.end_lease(gone).await;
        let turn = lost(&store, next).await.remove(0);
        assert_eq!(turn.may_go_on(), may_go_on, "{turn:?}");
    }
}

async fn a_turn_that_was_not_begun_here_does_not_count(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    backend.end_lease("one").await;
    for replica in ["two", "three", "four"] {
        let turn = lost(&store, replica).await.remove(0);
        assert!(turn.may_go_on(), "{turn:?}");
        store.leave(&key("s"), &turn.fence, Departure::HandedOver { has_begun: false }).await.unwrap();
    }
}

async fn a_turn_that_waits_is_taken_over_a_few_times_at_most(backend: Backend) {
    let store = backend.store().await;
    let first = open(&store, "s").await;
    let Arrival::Waits(turn) = arrive(&store, "s", submission("one", "t-2")).await.unwrap() else {
        panic!("another turn runs")
    };
    let handed_over = async |fence: &Fence, has_begun| {
        store.leave(&key("s"), fence, Departure::HandedOver { has_begun }).await.unwrap();
        lost(&store, "two").await.remove(0)
    };
    let mut turn = handed_over(turn.fence(), true).await;
    for attempts in 0..LostTurn::MAX_TAKES {
        assert!(turn.may_go_on() && turn.attempts == attempts, "{turn:?}");
        // A process that has not tried does not count.
        turn = handed_over(&turn.fence, false).await;
        turn = handed_over(&turn.fence, true).await;
    }
    assert!(!turn.may_go_on(), "{turn:?}");
    first.say(event("e", "{}")).await.unwrap();
    first.close().await;
    go_on(&store, &turn.fence, "t-2", "begins").await.unwrap();
    let begun = handed_over(&turn.fence, true).await;
    assert!(begun.has_begun && begun.attempts == 1, "the takes before do not count: {begun:?}");
}

async fn a_turn_without_a_text_is_ended(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", Submission { resume: None, ..submission("one", "t-1") }).await;
    backend.end_lease("one").await;
    let turn = lost(&store, "two").await.remove(0);
    assert!(!turn.may_go_on());
    end_lost_turn(&*store, &turn, "gone").await.unwrap();
    assert_eq!(state(&store, "t-1").await, TaskState::Failed);
    let next = store.enter(&key("s"), submission("two", "t-2"), Window::NONE).await.unwrap();
    assert!(matches!(next, Entrance::Runs(..)), "the lost turn is in the queue no more");
}

async fn a_lost_turn_ends_with_an_event_and_a_failed_task(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "guide/ann/s", submission("one", "t-1")).await;
    backend.end_lease("one").await;
    let turn = lost(&store, "two").await.remove(0);
    end_lost_turn(&*store, &turn, "The server stopped.").await.unwrap();
    end_lost_turn(&*store, &turn, "again").await.unwrap();
    let said = events(&store, "guide/ann/s").await;
    let [hello, broken_off] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!((&*hello.author, &*broken_off.author, &*broken_off.invocation_id), ("user", "guide", "t-1"));
    assert_eq!(broken_off.error.as_ref().unwrap().code, "BROKEN_OFF");
    let task = store.task(&"t-1".into()).await.unwrap().unwrap().decode().unwrap();
    assert_eq!(task.status.message.as_ref().map(Message::text).as_deref(), Some("The server stopped."));
}

async fn a_lost_turn_that_was_to_be_cancelled_is_cancelled(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    assert!(store.cancel(&"t-1".into()).await.unwrap().unwrap().is_alive);
    backend.end_lease("one").await;
    assert!(!store.cancel(&"t-1".into()).await.unwrap().unwrap().is_alive);
    let turn = lost(&store, "two").await.remove(0);
    assert!(turn.is_cancelled && !turn.may_go_on());
    end_lost_turn(&*store, &turn, "gone").await.unwrap();
    assert_eq!(state(&store, "t-1").await, TaskState::Canceled);
}

async fn a_turn_is_taken_from_a_process_that_does_not_answer(backend: Backend) {
    let store = backend.store().await;
    let fence = begun(&store, "s", submission("one", "t-1")).await;
    let asked = store.cancel(&"t-1".into()).await.unwrap().unwrap();
    let turn = store.take(&"t-1".into(), &asked.fence, &"two".into()).await.unwrap().unwrap();
    assert!(store.take(&"t-1".into(), &asked.fence, &"three".into()).await.unwrap().is_none());
    assert!(matches!(go_on(&store, &fence, "t-1", "late").await, Err(AppendError::Fenced)));
    end_lost_turn(&*store, &turn, "gone").await.unwrap();
    assert_eq!(state(&store, "t-1").await, TaskState::Canceled);
}

async fn a_process_without_a_lease_takes_nothing(backend: Backend) {
    let store = backend.store().await;
    let fence = begun(&store, "s", submission("one", "t-1")).await;
    backend.end_lease("one").await;
    backend.end_lease("two").await;
    assert!(lost(&store, "two").await.is_empty());
    assert!(store.take(&"t-1".into(), &fence, &"two".into()).await.unwrap().is_none());
    assert_eq!(lost(&store, "three").await.len(), 1);
}

async fn whoever_runs_a_turn_hears_that_it_was_taken(backend: Backend) {
    let store = backend.store().await;
    let fence = begun(&store, "s", submission("one", "t-1")).await;
    let running = [("t-1".into(), fence.clone())];
    assert!(store.turns_to_stop(&running).await.unwrap().is_empty());
    store.take(&"t-1".into(), &fence, &"two".into()).await.unwrap().unwrap();
    assert_eq!(store.turns_to_stop(&running).await.unwrap(), ["t-1".into()]);
}

async fn a_running_turn_that_is_dropped_is_left_to_others(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    turn.say(event("e", "{}")).await.unwrap();
    drop(turn);
    // What leaves the queue does so in the background.
    let lost = loop {
        let lost = lost(&store, "one").await;
        if !lost.is_empty() {
            break lost;
        }
        tokio::task::yield_now().await;
    };
    assert!(lost[0].has_begun);
    assert!(find(&store, "s").await.is_some());
}

async fn a_waiting_turn_that_is_dropped_is_left_to_others(backend: Backend) {
    let store = backend.store().await;
    let first = open(&store, "s").await;
    let Arrival::Waits(second) = arrive(&store, "s", submission("one", "t-2")).await.unwrap() else {
        panic!("another turn runs")
    };
    drop(second);
    // What leaves the queue does so in the background.
    let lost = loop {
        if let Some(turn) = lost(&store, "one").await.pop() {
            break turn;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((lost.task.as_str(), lost.has_begun, lost.attempts), ("t-2", false, 0));
    assert!(lost.may_go_on());
    first.say(event("first", "{}")).await.unwrap();
    first.close().await;
    let any: Arc<dyn ConversationStore> = store.clone();
    let next = Conversation::resume(&any, key("s"), (lost.fence, submission("one", "t-2")), beginning(0));
    next.runs().await.unwrap().say(event("second", "{}")).await.unwrap();
    assert_eq!(events(&store, "s").await.len(), 2);
}

/// Its process does not know that the append of the message was stored.
async fn a_refused_turn_that_has_begun_is_left_to_others(backend: Backend) {
    let store = backend.store().await;
    let fence = begun(&store, "s", submission("one", "t-1")).await;
    store.leave(&key("s"), &fence, Departure::Refused).await.unwrap();
    assert!(matches!(go_on(&store, &fence, "t-1", "late").await, Err(AppendError::Fenced)));
    let taken = lost(&store, "two").await;
    assert!(matches!(taken.as_slice(), [turn] if turn.has_begun && turn.may_go_on()), "{taken:?}");
}

/// The memory store cannot lose a turn: it finds turns in their queues.
async fn a_turn_that_its_queue_has_lost_is_taken_all_the_same(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    backend.execute("UPDATE conversation SET turns = ''".to_owned()).await;
    backend.end_lease("one").await;
    let turn = lost(&store, "two").await.remove(0);
    go_on(&store, &turn.fence, "t-1", "answer").await.unwrap();
    end_lost_turn(&*store, &turn, "gone").await.unwrap();
    assert_eq!(state(&store, "t-1").await, TaskState::Failed);
}

async fn a_turn_that_is_taken_over_does_not_bring_a_deleted_conversation_back(backend: Backend) {
    let store = backend.store().await;
    begun(&store, "s", submission("one", "t-1")).await;
    assert!(store.delete(&key("s")).await.unwrap());
    backend.end_lease("one").await;
    let turn = lost(&store, "two").await.remove(0);
    assert!(matches!(go_on(&store, &turn.fence, "t-1", "answer").await, Err(AppendError::Missing)));
    end_lost_turn(&*store, &turn, "gone").await.unwrap();
    assert_eq!(state(&store, "t-1").await, TaskState::Failed);
    assert!(find(&store, "s").await.is_none());
}

/// The append and the departure wait for the same row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_leaves_during_its_first_append_is_left_to_others() {
    on_postgres(async |backend| {
        let Backend::Postgres(url) = &backend else { unreachable!("it is PostgreSQL") };
        let store = backend.store().await;
        let Arrival::Runs(turn) = arrive(&store, "s", submission("one", "t-1")).await.unwrap() else {
            panic!("another turn runs")
        };
        let mut other = PgConnection::connect(url).await.unwrap();
        let mut held = other.begin().await.unwrap();
        sqlx::query("UPDATE conversation SET number = number").execute(&mut *held).await.unwrap();
        let says = turn.clone();
        let append = tokio::spawn(async move { says.say(event("e", "{}")).await });
        waiting_statements(url, 1).await;
        let (leaving, fence) = (store.clone(), turn.fence().clone());
        let leave = tokio::spawn(async move { leaving.leave(&key("s"), &fence, Departure::Refused).await });
        waiting_statements(url, 2).await;
        held.rollback().await.unwrap();
        append.await.unwrap().unwrap();
        leave.await.unwrap().unwrap();
        let taken = lost(&store, "two").await;
        assert!(matches!(taken.as_slice(), [turn] if turn.has_begun), "{taken:?}");
    })
    .await;
}

/// Waits until so many statements wait for a lock.
async fn waiting_statements(url: &str, count: i64) {
    const WAITING: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut connection = PgConnection::connect(url).await.unwrap();
    while sqlx::query_scalar::<_, i64>(WAITING).fetch_one(&mut connection).await.unwrap() < count {}
}
