//! Turns whose process has ended or handed the turn over: another process continues the turn.

use annex_protocol::{Message, StreamResponse, TaskId, TaskState};
use annex_tasks::{Creator, LostTurn, Place, PostgresTaskStore, TaskEvent, TaskStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::cluster::Scratch;
use crate::fixture::{owner, working};
use crate::table;

const REASON: &str = "the server stopped";

async fn connect(scratch: &Scratch) -> PostgresTaskStore {
    PostgresTaskStore::connect(scratch.url(), 4).await.unwrap()
}

async fn begin(store: &PostgresTaskStore, id: &str, turn: &str) -> Place {
    let task = working(id);
    let events = [StreamResponse::Task(task.clone()).into()];
    store.create(&owner("ada"), &events, &task.into(), Creator { runner: None, turn: Some(turn) }).await.unwrap()
}

/// Ends the lease of the process as if it had been killed.
async fn kill(scratch: &Scratch, store: PostgresTaskStore) {
    let replica = store.replica().unwrap();
    drop(store);
    let mut database = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(table::end(replica.id()))).execute(&mut database).await.unwrap();
    database.close().await.unwrap();
}

fn lost(id: &str, epoch: u64, turn: &str) -> LostTurn {
    LostTurn { task: id.into(), owner: owner("ada"), epoch, turn: turn.to_owned() }
}

async fn state(store: &PostgresTaskStore, id: &str) -> TaskState {
    store.load(&owner("ada"), &id.into()).await.unwrap().unwrap().decode().unwrap().state()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_goes_on_in_another_process_once() {
    let Some(scratch) = Scratch::create().await else { return };
    let [killed, second, third] = [connect(&scratch).await, connect(&scratch).await, connect(&scratch).await];
    begin(&killed, "t-1", "what it needs").await;
    begin(&killed, "t-2", "").await;
    kill(&scratch, killed).await;
    // Whoever cannot go on with turns leaves them.
    assert_eq!(second.recover_lost(REASON).await.unwrap(), [TaskId::from("t-2")]);
    let taken = second.take_lost(REASON).await.unwrap();
    assert_eq!((taken.ended, taken.turns), (vec![], vec![lost("t-1", 1, "what it needs")]));
    assert_eq!(state(&second, "t-1").await, TaskState::Working);
    kill(&scratch, second).await;
    let taken = third.take_lost(REASON).await.unwrap();
    assert_eq!((taken.ended, taken.turns), (vec![TaskId::from("t-1")], vec![]));
    assert_eq!(state(&third, "t-1").await, TaskState::Failed);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_begins_another_turn_with_what_that_one_needs() {
    let Some(scratch) = Scratch::create().await else { return };
    let [killed, second, third] = [connect(&scratch).await, connect(&scratch).await, connect(&scratch).await];
    let place = begin(&killed, "t-1", "first").await;
    begin(&killed, "t-2", "first").await;
    kill(&scratch, killed).await;
    assert_eq!(second.take_lost(REASON).await.unwrap().turns.len(), 2);
    let answer = TaskEvent::from(Message::user_text("here"));
    for (id, turn) in [("t-1", Some("second")), ("t-2", None)] {
        let place = Place { epoch: 1, runner: None, turn: turn.map(Into::into), ..place.clone() };
        let events = std::slice::from_ref(&answer);
        assert_eq!(second.append(&id.into(), &place, events, &working(id).into()).await.unwrap().epoch, 2);
    }
    kill(&scratch, second).await;
    let taken = third.take_lost(REASON).await.unwrap();
    assert_eq!((taken.ended, taken.turns), (vec![TaskId::from("t-2")], vec![lost("t-1", 3, "second")]));
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_its_process_leaves_is_taken_at_once_and_a_turn_that_has_not_begun_does_not_count() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    let id = TaskId::from("t-1");
    begin(&one, "t-1", "turn").await;
    assert!(other.take_lost(REASON).await.unwrap().turns.is_empty());
    assert!(!other.hand_over(&id, 0, true).await.unwrap(), "it is not the other one's to leave");
    assert!(one.hand_over(&id, 0, true).await.unwrap());
    let mut epoch = 1;
    for store in [&other, &one, &other, &one] {
        assert_eq!(store.take_lost(REASON).await.unwrap().turns, [lost("t-1", epoch, "turn")]);
        assert!(store.hand_over(&id, epoch, false).await.unwrap());
        epoch += 1;
    }
    assert_eq!(other.take_lost(REASON).await.unwrap().turns, [lost("t-1", epoch, "turn")]);
    assert!(other.hand_over(&id, epoch, true).await.unwrap());
    assert_eq!(one.take_lost(REASON).await.unwrap().ended, [id]);
    scratch.remove().await;
}
