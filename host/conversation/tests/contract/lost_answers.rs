//! Connections to PostgreSQL that break between a statement and its answer, at each statement of a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annex_conversation::{
    Append, AppendError, Arrival, Claim, Conversation, ConversationStore, Departure, Entrance, Entry, Event, Fence,
    MessageKey, Position, StoreError, Submission, TaskSnapshot, Window, end_lost_turn,
};
use annex_protocol::{Message, Part, TaskState, Timestamp};
use sqlx::postgres::PgConnectOptions;

use crate::backend::{Backend, on_postgres};
use crate::statement_counter::Counter;
use crate::support::{Store, beginning, delta, event, events, holder, ids, key, numbers, submission, update};
use crate::trips::open;

/// A store over connections that can break.
struct Wired {
    counter: Counter,
    backend: Backend,
    store: Store,
    /// The statement whose answer is lost.
    statement: u64,
    /// True if the last change had so many statements.
    has_lost: AtomicBool,
}

impl Wired {
    async fn on(backend: Backend) -> Self {
        let Backend::Postgres(url) = &backend else { unreachable!("it is PostgreSQL") };
        let database: PgConnectOptions = url.parse().unwrap();
        let counter = Counter::start(database.clone());
        let store = open(counter.url(&database)).await;
        Self { counter, backend, store, statement: 0, has_lost: AtomicBool::default() }
    }

    /// Loses the answer to one of the statements of a change.
    async fn losing_answer<T>(&self, change: impl Future<Output = T>) -> T {
        self.counter.lose_answer(self.statement);
        let changed = change.await;
        self.has_lost.store(self.counter.lose_answer(0), Ordering::SeqCst);
        changed
    }
}

/// Runs each case, in a place of its own, once for each statement of its change. The answer to that statement is lost.
macro_rules! at_each_statement {
    ($($case:ident),+ $(,)?) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::on_postgres(async |backend| {
                    let mut wired = super::Wired::on(backend).await;
                    while {
                        wired.statement += 1;
                        super::$case(&wired, &wired.statement.to_string()).await;
                        wired.has_lost.load(std::sync::atomic::Ordering::SeqCst)
                    } {}
                    assert!(wired.statement > 1, "no answer was lost");
                })
                .await;
            })+
        }
    };
}

at_each_statement!(
    an_append_in_one_statement_is_stored_once_although_its_answer_is_lost,
    an_append_in_a_transaction_is_stored_once_although_an_answer_is_lost,
    an_end_is_stored_once_although_its_answer_is_lost,
    an_end_without_an_entry_counts_as_stored_although_its_answer_is_lost,
    an_answer_is_stored_once_although_an_answer_of_the_database_is_lost,
    an_answer_without_an_event_counts_as_stored_although_an_answer_of_the_database_is_lost,
    a_refusal_is_stored_once_although_an_answer_is_lost,
    a_refusal_without_an_event_counts_as_stored_although_an_answer_is_lost,
    a_turn_that_has_entered_without_hearing_so_is_in_nobodys_way,
    a_turn_that_was_taken_without_hearing_so_counts_as_taken,
    lost_turns_are_all_taken_although_an_answer_is_lost,
    a_turn_that_was_handed_over_without_hearing_so_is_handed_over_once,
);

fn message(path: &str) -> MessageKey {
    MessageKey { context: key(path).context.clone(), message: "m".into(), digest: [1; 32] }
}

/// A turn that has stored a message of the user.
async fn begun(store: &Store, path: &str, task: &str) -> Conversation {
    let claim = store.claim(key(path).owner(), &message(path), &task.into(), &holder("one")).await.unwrap();
    assert_eq!(claim, Claim::New(task.into()));
    let submission = Submission { message: Some(message(path)), ..submission("one", task) };
    let any: Arc<dyn ConversationStore> = store.clone();
    let Arrival::Runs(turn) = Conversation::enter(&any, key(path), submission, beginning(0)).await.unwrap() else {
        panic!("another turn runs in {path}")
    };
    let asked = Entry::said_by_user(Message::user_text("Hello"), task, delta("{}"), Some(Timestamp::now()));
    turn.append(vec![asked]).await.unwrap();
    turn
}

fn with_artifact(id: &str, state_delta: &str) -> Event {
    Event { artifacts: [("file".to_owned(), vec![Part::text(id)].into())].into(), ..event(id, state_delta) }
}

async fn append(wired: &Wired, place: &str, change: &str) {
    let store = &wired.store;
    let turn = begun(store, place, place).await;
    let working = update(&turn.task().await.into_task(), TaskState::Working);
    let first = vec![with_artifact("first", change).into(), working];
    assert_eq!(wired.losing_answer(turn.append(first)).await.unwrap().number, 3);
    assert_eq!(turn.append(vec![event("second", "{}").into()]).await.unwrap().number, 4);
    assert_eq!(ids(&events(store, place).await)[1..], ["first", "second"]);
    let entries = store.entries_after(&place.into(), 0, (10, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&entries), [1, 2, 3, 4]);
    assert_eq!(store.artifact(&key(place), "file").await.unwrap().unwrap().version, 1);
    turn.leave(Departure::Refused).await.unwrap();
}

async fn an_append_in_one_statement_is_stored_once_although_its_answer_is_lost(wired: &Wired, place: &str) {
    append(wired, place, r#"{"a":1}"#).await;
}

async fn an_append_in_a_transaction_is_stored_once_although_an_answer_is_lost(wired: &Wired, place: &str) {
    append(wired, place, r#"{"a":1,"user:a":1,"app:a":1}"#).await;
}

/// The ways in which a turn ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Task,
    Answer,
    Refusal,
}

async fn end(wired: &Wired, place: &str, end: End, last: Vec<Entry>) {
    let store = &wired.store;
    let turn = begun(store, place, place).await;
    turn.append(vec![event("first", "{}").into()]).await.unwrap();
    let mut expected = vec!["first"];
    expected.extend(last.iter().map(|_| "last"));
    let answer = Message::agent(key(place).context.clone(), None, vec![Part::text("Hello")]);
    let ended = async {
        match end {
            End::Task => turn.end(last).await,
            End::Answer => turn.answer(last, &answer).await,
            End::Refusal => turn.refuse(last).await,
        }
    };
    let ended = wired.losing_answer(ended).await;
    ended.unwrap_or_else(|error| panic!("statement {place}: {error}"));
    assert_eq!(ids(&events(store, place).await)[1..], expected);
    let stored = store.task(&place.into()).await.unwrap();
    assert_eq!(stored.map(|stored| stored.is_worked_on), (end == End::Task).then_some(false));
    let claim = store.claim(key(place).owner(), &message(place), &"next".into(), &holder("one")).await.unwrap();
    let expected = match end {
        End::Task => Claim::Repeated(place.into()),
        End::Answer => Claim::Answered(Box::new(answer)),
        End::Refusal => Claim::New("next".into()),
    };
    assert_eq!(claim, expected);
    let next = store.enter(&key(place), submission("one", "next"), Window::NONE).await.unwrap();
    assert!(matches!(next, Entrance::Runs(..)), "the turn has left the queue");
}

fn last() -> Vec<Entry> {
    vec![event("last", "{}").into()]
}

async fn an_end_is_stored_once_although_its_answer_is_lost(wired: &Wired, place: &str) {
    end(wired, place, End::Task, last()).await;
}

async fn an_end_without_an_entry_counts_as_stored_although_its_answer_is_lost(wired: &Wired, place: &str) {
    end(wired, place, End::Task, Vec::new()).await;
}

async fn an_answer_is_stored_once_although_an_answer_of_the_database_is_lost(wired: &Wired, place: &str) {
    end(wired, place, End::Answer, last()).await;
}

async fn an_answer_without_an_event_counts_as_stored_although_an_answer_of_the_database_is_lost(
    wired: &Wired,
    place: &str,
) {
    end(wired, place, End::Answer, Vec::new()).await;
}

async fn a_refusal_is_stored_once_although_an_answer_is_lost(wired: &Wired, place: &str) {
    end(wired, place, End::Refusal, last()).await;
}

async fn a_refusal_without_an_event_counts_as_stored_although_an_answer_is_lost(wired: &Wired, place: &str) {
    end(wired, place, End::Refusal, Vec::new()).await;
}

async fn a_turn_that_has_entered_without_hearing_so_is_in_nobodys_way(wired: &Wired, place: &str) {
    let Wired { store, backend, .. } = wired;
    let entered = wired.losing_answer(store.enter(&key(place), submission("one", place), Window::NONE)).await;
    let Err(refused) = entered else { return };
    assert!(matches!(refused, AppendError::Store(StoreError::Database(_))), "{refused}");
    // The place in the queue is given back in the background.
    let begin = Instant::now();
    while backend.number("SELECT count(*) FROM conversation WHERE turns <> ''").await > 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "the turn is still in the queue");
    }
    let entered = store.enter(&key(place), submission("one", place), Window::NONE).await.unwrap();
    let Entrance::Runs(fence, _) = entered else { panic!("another turn runs") };
    store.leave(&key(place), &fence, Departure::Refused).await.unwrap();
}

/// A turn of a process whose lease is over. The message of the turn is stored.
async fn lose_turn(wired: &Wired, path: &str, task: &str) -> Fence {
    let store = &wired.store;
    let since = Timestamp::now();
    let submission = submission("two", task);
    let Entrance::Runs(fence, _) = store.enter(&key(path), submission.clone(), Window::NONE).await.unwrap() else {
        panic!("another turn runs in {path}")
    };
    let entries = [Entry::said_by_user(Message::user_text("Hello"), task, delta("{}"), Some(since))];
    let snapshot = TaskSnapshot::submitted(task.into(), key(path).context.clone(), since).with(&entries);
    let (by, submission) = (Some(&fence), Some(&submission));
    let append = Append { by, submission, entries: &entries, task: Some(&snapshot), ..Append::default() };
    store.append(&key(path), &Position::of_task(task.into(), 0), append).await.unwrap();
    fence
}

async fn a_turn_that_was_taken_without_hearing_so_counts_as_taken(wired: &Wired, place: &str) {
    let store = &wired.store;
    let fence = lose_turn(wired, place, place).await;
    let (task, by) = (place.into(), "one".into());
    let taken = wired.losing_answer(store.take(&task, &fence, &by)).await.unwrap().unwrap();
    assert_eq!((taken.attempts, taken.has_begun), (1, true));
    assert!(store.take(&place.into(), &fence, &"three".into()).await.unwrap().is_none());
    end_lost_turn(store.as_ref(), &taken, "gone").await.unwrap().unwrap();
}

/// Two turns of a process that is gone: one has a message, and the other one has promised nothing to its client.
async fn lost_turns_are_all_taken_although_an_answer_is_lost(wired: &Wired, place: &str) {
    let Wired { store, backend, .. } = wired;
    let (path, other) = (format!("{place}/s"), format!("{place}/other"));
    let (begun, promised_nothing) = (format!("a-{place}"), format!("b-{place}"));
    backend.begin_lease("two").await;
    lose_turn(wired, &path, &begun).await;
    let fence = lose_turn(wired, &other, &promised_nothing).await;
    let asked = store.task(&promised_nothing.as_str().into()).await.unwrap().unwrap().decode().unwrap();
    let entries = [update(&asked, TaskState::InputRequired)];
    let asked = asked.with(&entries);
    let append = Append { by: Some(&fence), entries: &entries, task: Some(&asked), ends: true, ..Append::default() };
    store.append(&key(&other), &Position::of_task(asked.id().clone(), 1), append).await.unwrap();
    store.enter(&key(&other), submission("two", &promised_nothing), Window::NONE).await.unwrap();
    backend.end_lease("two").await;
    let by = "one".into();
    let mut taken = wired.losing_answer(store.take_lost(&by, 10)).await.unwrap_or_default();
    // The call is made again and again.
    taken.extend(store.take_lost(&by, 10).await.unwrap());
    let tasks: Vec<_> = taken.iter().map(|turn| turn.task.to_string()).collect();
    assert_eq!(tasks, [begun], "statement {place}");
    end_lost_turn(store.as_ref(), &taken[0], "gone").await.unwrap().unwrap();
    let next = store.enter(&key(&other), submission("one", &promised_nothing), Window::NONE).await.unwrap();
    let Entrance::Runs(fence, _) = next else { panic!("statement {place}: a turn that nobody runs is first") };
    store.leave(&key(&other), &fence, Departure::Refused).await.unwrap();
}

async fn a_turn_that_was_handed_over_without_hearing_so_is_handed_over_once(wired: &Wired, place: &str) {
    let store = &wired.store;
    let turn = begun(store, place, place).await;
    let left = async {
        while let Err(error) = turn.leave(Departure::HandedOver { has_begun: true }).await {
            assert!(matches!(error, StoreError::Database(_)), "{error}");
        }
    };
    wired.losing_answer(left).await;
    let lost = store.take_lost(&"three".into(), 10).await.unwrap();
    let [lost] = lost.as_slice() else { panic!("{lost:?}") };
    assert_eq!(lost.attempts, 1);
    end_lost_turn(store.as_ref(), lost, "gone").await.unwrap().unwrap();
    let next = store.enter(&key(place), submission("one", "next"), Window::NONE).await.unwrap();
    assert!(matches!(next, Entrance::Runs(..)));
}
