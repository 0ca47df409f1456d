//! Two processes write to one task, and the earlier owner is refused.

use annex_leases::Replica;
use annex_protocol::{Message, StreamResponse, TaskId, TaskState};
use annex_tasks::{AskedRunner, Creator, Place, PostgresTaskStore, StoreError, TaskEvent, TaskStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::cluster::Scratch;
use crate::fixture::{at, change, owner, working};
use crate::table;

async fn connect(scratch: &Scratch) -> PostgresTaskStore {
    PostgresTaskStore::connect(scratch.url(), 4).await.unwrap()
}

/// Ends the lease in the database, which its process has not heard of.
async fn end_lease(scratch: &Scratch, replica: &Replica) {
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(table::end(replica.id()))).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// A task of this process.
async fn begin(store: &PostgresTaskStore, id: &str) -> Place {
    let task = working(id);
    store
        .create(&owner("ada"), &[StreamResponse::Task(task.clone()).into()], &task.into(), Creator::default())
        .await
        .unwrap()
}

/// The agent says something.
async fn write(store: &PostgresTaskStore, id: &str, place: &Place) -> Result<Place, StoreError> {
    let mut task = working(id);
    let event = change(&mut task, TaskState::Working, at(2_000));
    store.append(&task.id.clone(), place, &[event], &task.into()).await
}

/// A client answers.
async fn answer(store: &PostgresTaskStore, id: &str, place: &Place) -> Result<Place, StoreError> {
    let event = TaskEvent::from(Message::user_text("here"));
    store.append(&id.into(), place, &[event], &working(id).into()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_task_another_one_has_taken_writes_nothing_more() {
    let Some(scratch) = Scratch::create().await else { return };
    let [slow, other] = [connect(&scratch).await, connect(&scratch).await];
    let id = TaskId::from("t-1");
    let place = begin(&slow, "t-1").await;
    let taken = other.take(&id, place.epoch).await.unwrap().unwrap();
    assert_eq!((taken.seq, taken.epoch), (1, 1));
    let refused = write(&slow, "t-1", &place).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    assert!(slow.take(&id, place.epoch).await.unwrap().is_none(), "it was taken back in an epoch that is over");
    // Without the epoch the same statement would have written.
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let before = sqlx::query("UPDATE task SET seq = 2 WHERE id = 't-1' AND seq = 1").execute(&mut *transaction).await;
    assert_eq!(before.unwrap().rows_affected(), 1);
    transaction.rollback().await.unwrap();
    connection.close().await.unwrap();

    let next = write(&other, "t-1", &taken).await.unwrap();
    assert_eq!((next.seq, next.epoch), (2, 1));
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_lease_is_over_creates_no_task() {
    let Some(scratch) = Scratch::create().await else { return };
    let [slow, other] = [connect(&scratch).await, connect(&scratch).await];
    let replica = slow.replica().unwrap();
    let create = async |id: &str| {
        let task = working(id);
        let events = [StreamResponse::Task(task.clone()).into()];
        slow.create(&owner("ada"), &events, &task.into(), Creator { runner: Some(&replica), turn: None }).await
    };
    assert_eq!(create("t-1").await.unwrap().runner.unwrap().id(), replica.id());
    end_lease(&scratch, &replica).await;
    let refused = create("t-2").await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    // Whoever has taken the message over creates it.
    begin(&other, "t-2").await;
    let late = create("t-2").await.unwrap_err();
    assert!(matches!(late, StoreError::AlreadyExists { .. }), "{late}");
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_lease_is_over_joins_no_task() {
    let Some(scratch) = Scratch::create().await else { return };
    let [slow, other] = [connect(&scratch).await, connect(&scratch).await];
    let place = begin(&other, "t-1").await;
    let late = Place { runner: slow.replica(), ..place.clone() };
    end_lease(&scratch, &slow.replica().unwrap()).await;
    let refused = answer(&slow, "t-1", &late).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    assert_eq!(answer(&other, "t-1", &place).await.unwrap().epoch, place.epoch + 1);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_answers_for_one_task_one_begins_its_turn() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    for round in 0..20 {
        let id = format!("t-{round}");
        let place = begin(&one, &id).await;
        let (first, second) = tokio::join!(answer(&one, &id, &place), answer(&other, &id, &place));
        let (begun, refused) = if first.is_ok() { (first, second) } else { (second, first) };
        let (begun, refused) = (begun.unwrap(), refused.unwrap_err());
        assert_eq!((begun.seq, begun.epoch), (2, 1));
        assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    }
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_hears_which_of_its_turns_are_to_be_cancelled() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    let id = TaskId::from("t-1");
    let place = begin(&one, "t-1").await;
    begin(&one, "t-2").await;
    let running = [(id.clone(), place.epoch), (TaskId::from("t-2"), 0)];
    assert_eq!(other.ask_to_cancel(&id).await.unwrap(), Some(AskedRunner { epoch: 0, is_alive: true }));
    assert_eq!(one.turns_to_stop(&running).await.unwrap(), std::slice::from_ref(&id));
    assert!(one.turns_to_stop(&running[1..]).await.unwrap().is_empty());
    // That was for this turn. The next one is not to be cancelled.
    let next = answer(&one, "t-1", &place).await.unwrap();
    assert!(one.turns_to_stop(&[(id.clone(), next.epoch)]).await.unwrap().is_empty());
    // The turn before it has lost the task.
    assert_eq!(one.turns_to_stop(&running).await.unwrap(), [id]);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lost_task_that_was_to_be_cancelled_is_cancelled() {
    let Some(scratch) = Scratch::create().await else { return };
    let [killed, other] = [connect(&scratch).await, connect(&scratch).await];
    let id = TaskId::from("t-1");
    begin(&killed, "t-1").await;
    other.ask_to_cancel(&id).await.unwrap();
    let replica = killed.replica().unwrap();
    drop(killed);
    end_lease(&scratch, &replica).await;
    let asked = other.ask_to_cancel(&id).await.unwrap();
    assert_eq!(asked, Some(AskedRunner { epoch: 0, is_alive: false }));
    assert_eq!(other.recover_lost("the server stopped").await.unwrap(), std::slice::from_ref(&id));
    let task = other.load(&owner("ada"), &id).await.unwrap().unwrap();
    assert_eq!((task.epoch, task.decode().unwrap().state()), (1, TaskState::Canceled));
    scratch.remove().await;
}
