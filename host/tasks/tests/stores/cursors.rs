//! Push notifications of several processes on one PostgreSQL database: the sender and its progress.

use std::time::Duration;

use annex_protocol::{TaskPushNotificationConfig, TaskState};
use annex_tasks::{
    MAX_PUSH_FAILURES, PostgresTaskStore, PushCursor, PushCursors, PushProgress, PushThen, SqliteTaskStore, TaskStore,
};

use crate::cluster::Scratch;
use crate::fixture::{OneByOne, at, change, owner, working};
use crate::replicas::{connect, kill};

fn config(id: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: Some(id.to_owned()),
        task_id: Some("t-1".into()),
        url: "https://example.com".to_owned(),
        ..TaskPushNotificationConfig::default()
    }
}

/// The task `t-1` with one event and a config.
async fn with_config(store: &PostgresTaskStore) {
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    store.put_config(&"t-1".into(), &config("c")).await.unwrap();
}

/// One more event, behind number `last`.
async fn add(store: &PostgresTaskStore, last: u64) {
    let mut task = working("t-1");
    let event = change(&mut task, TaskState::Working, at(2_000));
    store.add(&task.id, last, &event, &task).await.unwrap();
}

fn cursors(store: &PostgresTaskStore) -> &dyn PushCursors {
    store.push_cursors().unwrap()
}

async fn open(store: &PostgresTaskStore, sends: bool) -> PushCursor {
    cursors(store).open(&"t-1".into(), "c", (1, sends)).await.unwrap().unwrap()
}

async fn claim(store: &PostgresTaskStore) -> Vec<PushCursor> {
    cursors(store).claim(&"t-1".into()).await.unwrap()
}

async fn claim_left(store: &PostgresTaskStore) -> Vec<PushCursor> {
    cursors(store).claim_left(10).await.unwrap()
}

async fn claim_unsent(store: &PostgresTaskStore) -> Vec<PushCursor> {
    cursors(store).claim_unsent(10).await.unwrap()
}

async fn advance(store: &PostgresTaskStore, cursor: &PushCursor, sent: u64, then: PushThen) -> bool {
    let progress = PushProgress { sent, failures: 0, wait: Duration::ZERO, then };
    cursors(store).advance(cursor, &progress).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_sends_at_a_time_and_another_one_goes_on_when_it_is_gone() {
    let Some(scratch) = Scratch::create().await else { return };
    let [sender, other] = [connect(&scratch).await, connect(&scratch).await];
    with_config(&sender).await;
    let cursor = open(&sender, true).await;
    assert_eq!((cursor.sent, cursor.failures, cursor.config.clone()), (1, 0, config("c")));
    add(&sender, 1).await;
    add(&sender, 2).await;
    assert!(advance(&sender, &cursor, 2, PushThen::GoesOn).await);
    assert!(claim(&other).await.is_empty() && claim_left(&other).await.is_empty(), "the sender lives");
    kill(&scratch, sender).await;
    let taken = claim_left(&other).await;
    assert_eq!((taken.len(), taken[0].sent, taken[0].owner.clone()), (1, 2, owner("ada")));
    assert!(claim_left(&other).await.is_empty(), "it sends already");
    // What the first one still believes to send changes nothing.
    assert!(!advance(&other, &cursor, 3, PushThen::GoesOn).await);
    assert!(advance(&other, &taken[0], 3, PushThen::GoesOn).await);
    // The last event of the task.
    assert!(!advance(&other, &taken[0], 3, PushThen::Ends).await);
    assert!(!advance(&other, &taken[0], 3, PushThen::GoesOn).await);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_rests_leaves_the_next_turn_to_whoever_runs_it() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    with_config(&one).await;
    let cursor = open(&one, true).await;
    add(&one, 1).await;
    assert!(advance(&one, &cursor, 1, PushThen::Rests).await, "there is an event that was not sent");
    assert!(!advance(&one, &cursor, 2, PushThen::Rests).await);
    assert!(claim_left(&other).await.is_empty(), "there is nothing to be sent");
    let claimed = claim(&other).await;
    assert_eq!((claimed.len(), claimed[0].sent), (1, 2));
    assert!(claim(&one).await.is_empty());
    // Left with something unsent it is anybody's.
    add(&one, 2).await;
    assert!(!advance(&other, &claimed[0], 2, PushThen::Leaves).await);
    assert_eq!(claim_left(&one).await.len(), 1);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waited_and_went_on_without_a_sender_is_found_by_a_thorough_look() {
    let Some(scratch) = Scratch::create().await else { return };
    let store = connect(&scratch).await;
    with_config(&store).await;
    open(&store, false).await;
    assert!(claim_unsent(&store).await.is_empty(), "there is nothing to be sent");
    add(&store, 1).await;
    assert!(claim_left(&store).await.is_empty(), "its turn may be about to claim it");
    assert_eq!(claim_unsent(&store).await.len(), 1);
    assert!(claim_unsent(&store).await.is_empty(), "it sends already");
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_of_a_version_without_cursors_gets_one_when_its_process_works_on_the_task_no_more() {
    let Some(scratch) = Scratch::create().await else { return };
    let [old, store] = [connect(&scratch).await, connect(&scratch).await];
    with_config(&old).await;
    add(&old, 1).await;
    assert!(claim_unsent(&store).await.is_empty());
    add(&old, 2).await;
    assert!(claim_unsent(&store).await.is_empty(), "its own process sends");
    kill(&scratch, old).await;
    assert!(claim_unsent(&store).await.is_empty(), "it has sent what there is");
    add(&store, 3).await;
    let claimed = claim_unsent(&store).await;
    assert_eq!((claimed.len(), claimed[0].sent), (1, 3));
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_is_deleted_or_replaced_takes_its_cursor_with_it() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    with_config(&one).await;
    let cursor = open(&one, true).await;
    other.put_config(&"t-1".into(), &config("c")).await.unwrap();
    let replaced = open(&other, true).await;
    assert!(!advance(&one, &cursor, 1, PushThen::GoesOn).await);
    assert!(advance(&other, &replaced, 1, PushThen::GoesOn).await);
    one.delete_config(&"t-1".into(), "c").await.unwrap();
    assert!(!advance(&other, &replaced, 1, PushThen::GoesOn).await);
    assert_eq!(cursors(&one).open(&"t-1".into(), "c", (1, true)).await.unwrap(), None);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_failed_is_left_alone_for_a_while_and_in_the_end_for_good() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [connect(&scratch).await, connect(&scratch).await];
    with_config(&one).await;
    let cursor = open(&one, true).await;
    add(&one, 1).await;
    let mut progress = PushProgress { sent: 1, failures: 1, wait: Duration::from_millis(500), then: PushThen::Leaves };
    assert!(!cursors(&one).advance(&cursor, &progress).await.unwrap());
    assert!(claim_left(&other).await.is_empty());
    tokio::time::sleep(progress.wait).await;
    let taken = claim_left(&other).await;
    assert_eq!((taken.len(), taken[0].failures), (1, 1));
    progress = PushProgress { failures: MAX_PUSH_FAILURES, wait: Duration::ZERO, ..progress };
    assert!(!cursors(&other).advance(&taken[0], &progress).await.unwrap());
    assert!(claim_left(&one).await.is_empty() && claim(&one).await.is_empty());
    scratch.remove().await;
}

#[tokio::test]
async fn a_store_of_one_process_has_no_cursors() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteTaskStore::open(&folder.path().join("tasks.db")).await.unwrap();
    assert!(store.push_cursors().is_none());
}
