//! Several processes on one PostgreSQL database: leases, and whose work is whose.

use annex_database::PostgresConnections;
use annex_protocol::{Message, Task, TaskId, TaskState};
use annex_tasks::{MessageKey, PostgresTaskStore, Remembered, StoreError, TaskEvent, TaskStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::cluster::Scratch;
use crate::fixture::{OneByOne, at, change, owner, working};
use crate::table;

const REASON: &str = "the server stopped";

pub(crate) async fn connect(scratch: &Scratch) -> PostgresTaskStore {
    PostgresTaskStore::connect(scratch.url(), 4).await.unwrap()
}

async fn sql(scratch: &Scratch, sql: &str) {
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The process of the store is killed, and its lease runs out.
pub(crate) async fn kill(scratch: &Scratch, store: PostgresTaskStore) {
    let replica = store.replica().unwrap();
    drop(store);
    sql(scratch, &table::end(replica.id())).await;
}

/// A task that began with a message of this id.
fn begun_by(message: &str, id: &str) -> Task {
    let history = vec![Message { message_id: message.into(), ..Message::user_text("begin") }];
    Task { history, ..working(id) }
}

fn message(id: &str) -> MessageKey {
    MessageKey { context: "c-1".into(), message: id.into(), digest: [1; 32] }
}

async fn state(store: &PostgresTaskStore, id: &str) -> TaskState {
    store.load(&owner("ada"), &id.into()).await.unwrap().unwrap().decode().unwrap().state()
}

fn ids(ids: &[TaskId]) -> Vec<&str> {
    ids.iter().map(|id| id.as_str()).collect()
}

async fn named_as(scratch: &Scratch, name: &str) -> PostgresTaskStore {
    PostgresTaskStore::open_as(Some(name), &PostgresConnections::new(scratch.url(), 4).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_touches_nothing_that_another_process_works_on() {
    let Some(scratch) = Scratch::create().await else { return };
    let ada = owner("ada");
    let first = connect(&scratch).await;
    first.begin(&ada, &working("t-1")).await.unwrap();
    first.remember(&ada, &message("m-1"), &"t-2".into()).await.unwrap();
    let second = connect(&scratch).await;
    assert!(second.recover(REASON).await.unwrap().is_empty());
    assert!(second.recover_lost(REASON).await.unwrap().is_empty());
    assert_eq!(state(&second, "t-1").await, TaskState::Working);
    let again = second.remember(&ada, &message("m-1"), &"t-3".into()).await.unwrap();
    assert_eq!(again, Remembered::Elsewhere("t-2".into()));
    // Its own process goes on with both.
    first.begin(&ada, &begun_by("m-1", "t-2")).await.unwrap();
    let again = second.remember(&ada, &message("m-1"), &"t-3".into()).await.unwrap();
    assert_eq!(again, Remembered::Same("t-2".into()));
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_worked_on_fails_and_nothing_else() {
    let Some(scratch) = Scratch::create().await else { return };
    let ada = owner("ada");
    let [killed, other, third] = [connect(&scratch).await, connect(&scratch).await, connect(&scratch).await];
    killed.begin(&ada, &working("t-1")).await.unwrap();
    other.begin(&ada, &working("t-2")).await.unwrap();
    let mut waits = working("t-3");
    killed.begin(&ada, &waits).await.unwrap();
    let asked = change(&mut waits, TaskState::InputRequired, at(2_000));
    killed.add(&waits.id, 1, &asked, &waits).await.unwrap();
    // A task that waited and whose client has answered is worked on.
    let mut answered = waits.clone();
    answered.id = "t-4".into();
    killed.begin(&ada, &answered).await.unwrap();
    let answer = TaskEvent::from(Message::user_text("here"));
    killed.add(&answered.id, 1, &answer, &answered).await.unwrap();
    assert!(other.load(&ada, &answered.id).await.unwrap().unwrap().is_worked_on);
    assert!(!other.load(&ada, &waits.id).await.unwrap().unwrap().is_worked_on);
    kill(&scratch, killed).await;

    let (one, two) = tokio::join!(other.recover_lost(REASON), third.recover_lost(REASON));
    let mut lost = [one.unwrap(), two.unwrap()].concat();
    lost.sort_unstable();
    assert_eq!(ids(&lost), ["t-1", "t-4"], "each by one of the two");
    assert_eq!((state(&third, "t-1").await, state(&third, "t-4").await), (TaskState::Failed, TaskState::Failed));
    assert_eq!(
        (state(&third, "t-2").await, state(&third, "t-3").await),
        (TaskState::Working, TaskState::InputRequired)
    );
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_killed_process_looked_at_is_worked_on_once_more_as_the_same_task() {
    let Some(scratch) = Scratch::create().await else { return };
    let ada = owner("ada");
    let [killed, other, third] = [connect(&scratch).await, connect(&scratch).await, connect(&scratch).await];
    killed.remember(&ada, &message("m-1"), &"t-1".into()).await.unwrap();
    kill(&scratch, killed).await;
    let (m, t2, t3) = (message("m-1"), "t-2".into(), "t-3".into());
    let (one, two) = tokio::join!(other.remember(&ada, &m, &t2), third.remember(&ada, &m, &t3));
    let told = [one.unwrap(), two.unwrap()];
    assert!(told.contains(&Remembered::Left("t-1".into())), "{told:?}");
    assert!(told.contains(&Remembered::Elsewhere("t-1".into())), "{told:?}");
    // Had the first one only been slow, its task would be the one of both.
    other.begin(&ada, &working("t-1")).await.unwrap();
    let late = third.begin(&ada, &working("t-1")).await.unwrap_err();
    assert!(matches!(late, StoreError::AlreadyExists { .. }), "{late}");
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_its_process_s_own_until_its_task_has_it() {
    let Some(scratch) = Scratch::create().await else { return };
    let ada = owner("ada");
    let [store, other] = [connect(&scratch).await, connect(&scratch).await];
    let again = async |id: &str| store.remember(&ada, &message(id), &"t-9".into()).await.unwrap();
    assert_eq!(store.remember(&ada, &message("m-1"), &"t-1".into()).await.unwrap(), Remembered::New);
    assert_eq!(again("m-1").await, Remembered::Own("t-1".into()));
    store.begin(&ada, &begun_by("m-1", "t-1")).await.unwrap();
    assert_eq!(again("m-1").await, Remembered::Same("t-1".into()));
    // The same with one for a task that is there.
    assert_eq!(store.remember(&ada, &message("m-2"), &"t-1".into()).await.unwrap(), Remembered::New);
    assert_eq!(again("m-2").await, Remembered::Own("t-1".into()));
    assert_eq!(
        other.remember(&ada, &message("m-2"), &"t-9".into()).await.unwrap(),
        Remembered::Elsewhere("t-1".into())
    );
    // Where it is not known whether the message was taken, it is forgotten unless it was.
    for id in ["m-1", "m-2"] {
        store.forget(&ada, &message(id)).await.unwrap();
    }
    assert_eq!(again("m-1").await, Remembered::Same("t-1".into()));
    assert_eq!(other.remember(&ada, &message("m-2"), &"t-9".into()).await.unwrap(), Remembered::New);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_takes_back_and_answers_its_own_messages_only() {
    let Some(scratch) = Scratch::create().await else { return };
    let ada = owner("ada");
    let [slow, other] = [connect(&scratch).await, connect(&scratch).await];
    slow.remember(&ada, &message("m-1"), &"t-1".into()).await.unwrap();
    sql(&scratch, "UPDATE message_seen SET runner = 'gone'").await;
    assert_eq!(other.remember(&ada, &message("m-1"), &"t-2".into()).await.unwrap(), Remembered::Left("t-1".into()));
    slow.forget(&ada, &message("m-1")).await.unwrap();
    slow.answer(&ada, &message("m-1"), &Message::user_text("late")).await.unwrap();
    let again = slow.remember(&ada, &message("m-1"), &"t-3".into()).await.unwrap();
    assert_eq!(again, Remembered::Elsewhere("t-1".into()));
    other.forget(&ada, &message("m-1")).await.unwrap();
    assert_eq!(slow.remember(&ada, &message("m-1"), &"t-4".into()).await.unwrap(), Remembered::New);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_under_the_same_name_ends_the_lease_of_its_predecessor_at_once() {
    let Some(scratch) = Scratch::create().await else { return };
    let named = async |name| named_as(&scratch, name).await;
    let [first, other] = [named("a").await, named("b").await];
    first.begin(&owner("ada"), &working("t-1")).await.unwrap();
    other.begin(&owner("ada"), &working("t-2")).await.unwrap();
    drop(first);
    let next = named("a").await;
    assert_eq!(ids(&next.recover(REASON).await.unwrap()), ["t-1"]);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_version_without_leases_worked_on_fails_at_a_start_and_not_later() {
    let Some(scratch) = Scratch::create().await else { return };
    let store = connect(&scratch).await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    sql(&scratch, "UPDATE task SET runner = NULL").await;
    assert!(store.recover_lost(REASON).await.unwrap().is_empty());
    assert_eq!(ids(&store.recover(REASON).await.unwrap()), ["t-1"]);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_task_that_cannot_be_read_keeps_no_other_from_its_end() {
    let Some(scratch) = Scratch::create().await else { return };
    let [killed, other] = [connect(&scratch).await, connect(&scratch).await];
    for id in ["t-1", "t-2"] {
        killed.begin(&owner("ada"), &working(id)).await.unwrap();
    }
    sql(&scratch, "UPDATE task SET json = '{' WHERE id = 't-1'").await;
    kill(&scratch, killed).await;
    assert_eq!(ids(&other.recover_lost(REASON).await.unwrap()), ["t-2"]);
    sql(&scratch, "UPDATE task SET json = 'looked at again' WHERE id = 't-1' AND runner IS NOT NULL").await;
    assert!(other.recover_lost(REASON).await.unwrap().is_empty());
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_tasks_is_told_which_of_them_others_have_changed() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    let mut changed = working("t-1");
    for task in [&changed, &working("t-2")] {
        one.begin(&owner("ada"), task).await.unwrap();
    }
    let event = change(&mut changed, TaskState::Completed, at(2_000));
    one.add(&changed.id, 1, &event, &changed).await.unwrap();
    let known = [("t-1".into(), 1), ("t-2".into(), 1), ("t-3".into(), 1)];
    let mut told = other.changed(&known).await.unwrap();
    told.sort_unstable();
    assert_eq!(told, [("t-1".into(), Some(2)), ("t-3".into(), None)]);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_a_task_that_waits_is_looked_at_until_it_has_reached_the_task() {
    let Some(scratch) = Scratch::create().await else { return };
    let ada = owner("ada");
    let [killed, one, other] = [connect(&scratch).await, connect(&scratch).await, connect(&scratch).await];
    let task = begun_by("m-1", "t-1");
    one.begin(&ada, &task).await.unwrap();
    let odd = "m \"\n\u{1}ö/\\";
    assert_eq!(one.remember(&ada, &message(odd), &task.id).await.unwrap(), Remembered::New);
    let again = other.remember(&ada, &message(odd), &task.id).await.unwrap();
    assert_eq!(again, Remembered::Elsewhere(task.id.clone()));
    let joined = TaskEvent::from(Message { message_id: odd.into(), ..Message::user_text("go on") });
    one.add(&task.id, 1, &joined, &task).await.unwrap();
    let again = other.remember(&ada, &message(odd), &task.id).await.unwrap();
    assert_eq!(again, Remembered::Same(task.id.clone()));
    // One that its process was killed with is worked on when it comes again.
    assert_eq!(killed.remember(&ada, &message("m-3"), &task.id).await.unwrap(), Remembered::New);
    kill(&scratch, killed).await;
    assert_eq!(other.remember(&ada, &message("m-3"), &task.id).await.unwrap(), Remembered::New);
    scratch.remove().await;
}
