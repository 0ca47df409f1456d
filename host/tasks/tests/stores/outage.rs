//! A connection that breaks between a change and its answer: the change is made once and reported as made.

use std::time::{Duration, Instant};

use annex_protocol::{Message, StreamResponse, TaskId, TaskState};
use annex_tasks::{Creator, Place, PostgresTaskStore, StoreError, TaskEvent, TaskStore};
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::cluster::Scratch;
use crate::fixture::{at, change, owner, working};
use crate::wires::Proxy;

/// A store whose answers can be lost, and the database as it is.
struct Wired {
    scratch: Scratch,
    proxy: Proxy,
    store: PostgresTaskStore,
    database: PgConnection,
}

impl Wired {
    async fn create() -> Option<Self> {
        let scratch = Scratch::create().await?;
        let options: PgConnectOptions = scratch.url().parse().unwrap();
        let proxy = Proxy::start(options.clone());
        let store = PostgresTaskStore::connect(&proxy.url(&options), 2).await.unwrap();
        let database = PgConnection::connect(scratch.url()).await.unwrap();
        Some(Self { scratch, proxy, store, database })
    }

    /// Loses the answer to a change that is made once the number is this.
    async fn losing<T>(
        &mut self,
        (number, expected): (&'static str, i64),
        change: impl AsyncFn(&PostgresTaskStore) -> T,
    ) -> T {
        let Self { proxy, store, database, .. } = self;
        proxy.lose_answers();
        let lose = async {
            let begin = Instant::now();
            while sqlx::query_scalar::<_, i64>(number).fetch_one(&mut *database).await.unwrap() != expected {
                assert!(begin.elapsed() < Duration::from_secs(3), "nothing is changed");
            }
            proxy.cut();
        };
        tokio::join!(change(store), lose).0
    }

    async fn number(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.database).await.unwrap()
    }
}

const EVENTS: &str = "SELECT count(*) FROM task_event";
const EPOCH: &str = "SELECT coalesce(max(epoch), 0) FROM task";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_made_once_and_counts_as_made() {
    let Some(mut wired) = Wired::create().await else { return };
    let id = TaskId::from("t-1");
    let mut task = working("t-1");
    let begun = [StreamResponse::Task(task.clone()).into()];
    let snapshot = task.clone().into();
    let place = wired
        .losing((EVENTS, 1), async |store| store.create(&owner("ada"), &begun, &snapshot, Creator::default()).await)
        .await;
    let place = place.unwrap();
    assert_eq!((place.seq, place.epoch), (1, 0));

    let event = change(&mut task, TaskState::Working, at(2_000));
    let snapshot = task.clone().into();
    let said = [event.clone(), event];
    let place = wired.losing((EVENTS, 3), async |store| store.append(&id, &place, &said, &snapshot).await).await;
    let place = place.unwrap();
    assert_eq!((place.seq, place.epoch), (3, 0));

    // With a message another epoch begins.
    let answer = [TaskEvent::from(Message::user_text("here"))];
    let place = wired.losing((EVENTS, 4), async |store| store.append(&id, &place, &answer, &snapshot).await).await;
    let place = place.unwrap();
    assert_eq!((place.seq, place.epoch), (4, 1));

    let taken = wired.losing((EPOCH, 2), async |store| store.take(&id, 1).await).await.unwrap().unwrap();
    assert_eq!((taken.seq, taken.epoch), (4, 2));
    assert_eq!((wired.number(EVENTS).await, wired.number(EPOCH).await), (4, 2));
    wired.database.close().await.unwrap();
    wired.scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_refused_where_another_process_has_taken_the_task() {
    let Some(mut wired) = Wired::create().await else { return };
    let id = TaskId::from("t-1");
    let mut task = working("t-1");
    let begun = [StreamResponse::Task(task.clone()).into()];
    let place: Place =
        wired.store.create(&owner("ada"), &begun, &task.clone().into(), Creator::default()).await.unwrap();
    let event = [change(&mut task, TaskState::Working, at(2_000))];
    let snapshot = task.clone().into();
    let taking = "UPDATE task SET epoch = epoch + 1, runner = 'other' WHERE id = 't-1'";
    let Wired { proxy, store, database, .. } = &mut wired;
    proxy.lose_answers();
    let taken = async {
        let begin = Instant::now();
        while sqlx::query_scalar::<_, i64>(EVENTS).fetch_one(&mut *database).await.unwrap() != 2 {
            assert!(begin.elapsed() < Duration::from_secs(3), "nothing is changed");
        }
        sqlx::query(taking).execute(&mut *database).await.unwrap();
        proxy.cut();
    };
    let (refused, ()) = tokio::join!(store.append(&id, &place, &event, &snapshot), taken);
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    assert_eq!(wired.number(EVENTS).await, 2);
    wired.database.close().await.unwrap();
    wired.scratch.remove().await;
}
