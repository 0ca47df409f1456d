//! Cases of PostgreSQL alone: several processes write.

use std::time::Duration;

use annex_protocol::TaskState;
use annex_tasks::{PostgresTaskStore, Retention, StoreError, TaskStore};

use crate::cluster::Scratch;
use crate::fixture::{OneByOne, at, change, numbers, owner, task, working};

/// Two stores with connections of their own, as two processes have them.
async fn two_stores(scratch: &Scratch) -> [PostgresTaskStore; 2] {
    let (first, second) =
        tokio::join!(PostgresTaskStore::connect(scratch.url(), 4), PostgresTaskStore::connect(scratch.url(), 4));
    [first.unwrap(), second.unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_do_not_interleave() {
    let Some(scratch) = Scratch::create().await else { return };
    let [first, second] = two_stores(&scratch).await;
    let task = working("t-1");
    first.begin(&owner("ada"), &task).await.unwrap();
    let write = async |store: &PostgresTaskStore| {
        let mut task = task.clone();
        let event = change(&mut task, TaskState::Working, at(2_000));
        let mut expected = 1;
        let mut refusals = 0;
        for _ in 0..50 {
            while let Err(error) = store.add(&task.id, expected, &event, &task).await {
                let StoreError::Stale { found, .. } = error else { panic!("{error}") };
                expected = found;
                refusals += 1;
            }
        }
        refusals
    };
    let (one, other) = tokio::join!(write(&first), write(&second));
    assert!(one + other > 0, "they never met");
    let events = second.events_after(&task.id, 0, 1_000).await.unwrap();
    assert_eq!(numbers(&events), (1..=101).collect::<Vec<_>>());
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sweepers_delete_no_more_than_one_would() {
    let Some(scratch) = Scratch::create().await else { return };
    let stores = two_stores(&scratch).await;
    for number in 0..300 {
        let finished = task(&format!("t-{number:03}"), TaskState::Completed, at(number));
        stores[0].begin(&owner("ada"), &finished).await.unwrap();
    }
    let retention = Retention { age: Duration::MAX, count: 20 };
    let (one, other) = tokio::join!(stores[0].sweep(&retention), stores[1].sweep(&retention));
    assert_eq!(one.unwrap() + other.unwrap(), 280);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_survives_a_new_connection() {
    let Some(scratch) = Scratch::create().await else { return };
    let task = working("t-1");
    let store = PostgresTaskStore::connect(scratch.url(), 1).await.unwrap();
    store.begin(&owner("ada"), &task).await.unwrap();
    store.close().await;
    let store = PostgresTaskStore::connect(scratch.url(), 1).await.unwrap();
    assert_eq!(*store.load(&owner("ada"), &task.id).await.unwrap().unwrap().decode().unwrap(), task);
    scratch.remove().await;
}

#[tokio::test]
async fn a_password_is_not_in_the_error() {
    for url in ["postgres://ada:hunter2@127.0.0.1:1/tasks", "postgres://ada:hunter2@127.0.0.1:port/tasks"] {
        let refused = PostgresTaskStore::connect(url, 1).await.unwrap_err();
        assert!(matches!(refused, StoreError::Database(_)), "{refused}");
        assert!(!format!("{refused} {refused:?}").contains("hunter2"));
    }
}
