//! Push notifications of several processes on one PostgreSQL database: the sender and its progress.

use std::time::Duration;

use annex_conversation::{MAX_PUSH_FAILURES, PushCursor, PushCursors, PushProgress, PushThen};
use annex_protocol::{TaskPushNotificationConfig, TaskState};

use crate::backend::{memory, on_postgres};
use crate::support::{Backend, Store, WritesTasks, at, change, owner, working};

/// Runs each case on PostgreSQL, the only store that several processes share.
macro_rules! on_a_shared_store {
    ($($case:ident),+ $(,)?) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::on_postgres(super::$case).await;
            })+
        }
    };
}

on_a_shared_store!(
    one_process_sends_at_a_time_and_another_one_goes_on_when_it_is_gone,
    a_sender_that_rests_leaves_the_next_turn_to_whoever_runs_it,
    a_task_that_waited_and_went_on_without_a_sender_is_found_by_a_thorough_look,
    a_config_that_is_deleted_or_replaced_takes_its_cursor_with_it,
    a_receiver_that_failed_is_left_alone_for_a_while_and_in_the_end_for_good,
);

fn config(id: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: Some(id.to_owned()),
        task_id: Some("t-1".into()),
        url: "https://example.com".to_owned(),
        ..TaskPushNotificationConfig::default()
    }
}

/// The task `t-1` with one entry and a config.
async fn with_config(backend: &Backend) -> Store {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    store.put_config(&"t-1".into(), &config("c")).await.unwrap();
    store
}

/// One more entry, behind number `last`.
async fn add(store: &Store, last: u64) {
    let mut task = working("t-1");
    let entry = change(&mut task, TaskState::Working, at(2_000));
    store.add(&task.id, last, &entry, &task).await.unwrap();
}

fn cursors(store: &Store) -> &dyn PushCursors {
    store.push_cursors().unwrap()
}

async fn open(store: &Store, by: &str, sends: bool) -> PushCursor {
    cursors(store).open(&"t-1".into(), "c", 1, (&by.into(), sends)).await.unwrap().unwrap()
}

async fn claim(store: &Store, by: &str) -> Vec<PushCursor> {
    cursors(store).claim(&"t-1".into(), &by.into()).await.unwrap()
}

async fn claim_left(store: &Store, by: &str) -> Vec<PushCursor> {
    cursors(store).claim_left(10, &by.into()).await.unwrap()
}

async fn claim_unsent(store: &Store, by: &str) -> Vec<PushCursor> {
    cursors(store).claim_unsent(10, &by.into()).await.unwrap()
}

async fn advance(store: &Store, cursor: &PushCursor, sent: u64, then: PushThen) -> bool {
    let progress = PushProgress { sent, failures: 0, wait: Duration::ZERO, then };
    cursors(store).advance(cursor, &progress).await.unwrap()
}

async fn one_process_sends_at_a_time_and_another_one_goes_on_when_it_is_gone(backend: Backend) {
    let store = with_config(&backend).await;
    let cursor = open(&store, "one", true).await;
    assert_eq!((cursor.sent, cursor.failures, cursor.config.clone()), (1, 0, config("c")));
    add(&store, 1).await;
    add(&store, 2).await;
    assert!(advance(&store, &cursor, 2, PushThen::GoesOn).await);
    assert!(claim(&store, "two").await.is_empty() && claim_left(&store, "two").await.is_empty(), "the sender lives");
    backend.end_lease("one").await;
    let taken = claim_left(&store, "two").await;
    assert_eq!((taken.len(), taken[0].sent, taken[0].owner.clone()), (1, 2, owner("ada")));
    assert!(claim_left(&store, "two").await.is_empty(), "it sends already");
    // What the first one still believes to send changes nothing.
    assert!(!advance(&store, &cursor, 3, PushThen::GoesOn).await);
    assert!(advance(&store, &taken[0], 3, PushThen::GoesOn).await);
    // The last event of the task.
    assert!(!advance(&store, &taken[0], 3, PushThen::Ends).await);
    assert!(!advance(&store, &taken[0], 3, PushThen::GoesOn).await);
}

async fn a_sender_that_rests_leaves_the_next_turn_to_whoever_runs_it(backend: Backend) {
    let store = with_config(&backend).await;
    let cursor = open(&store, "one", true).await;
    add(&store, 1).await;
    assert!(advance(&store, &cursor, 1, PushThen::Rests).await, "there is an event that was not sent");
    assert!(!advance(&store, &cursor, 2, PushThen::Rests).await);
    assert!(claim_left(&store, "two").await.is_empty(), "there is nothing to be sent");
    let claimed = claim(&store, "two").await;
    assert_eq!((claimed.len(), claimed[0].sent), (1, 2));
    assert!(claim(&store, "one").await.is_empty());
    // Left with something unsent it is anybody's.
    add(&store, 2).await;
    assert!(!advance(&store, &claimed[0], 2, PushThen::Leaves).await);
    assert_eq!(claim_left(&store, "one").await.len(), 1);
}

async fn a_task_that_waited_and_went_on_without_a_sender_is_found_by_a_thorough_look(backend: Backend) {
    let store = with_config(&backend).await;
    open(&store, "one", false).await;
    assert!(claim_unsent(&store, "one").await.is_empty(), "there is nothing to be sent");
    add(&store, 1).await;
    assert!(claim_left(&store, "one").await.is_empty(), "its turn may be about to claim it");
    assert_eq!(claim_unsent(&store, "one").await.len(), 1);
    assert!(claim_unsent(&store, "one").await.is_empty(), "it sends already");
}

async fn a_config_that_is_deleted_or_replaced_takes_its_cursor_with_it(backend: Backend) {
    let store = with_config(&backend).await;
    let cursor = open(&store, "one", true).await;
    store.put_config(&"t-1".into(), &config("c")).await.unwrap();
    let replaced = open(&store, "two", true).await;
    assert!(!advance(&store, &cursor, 1, PushThen::GoesOn).await);
    assert!(advance(&store, &replaced, 1, PushThen::GoesOn).await);
    store.delete_config(&"t-1".into(), "c").await.unwrap();
    assert!(!advance(&store, &replaced, 1, PushThen::GoesOn).await);
    assert_eq!(cursors(&store).open(&"t-1".into(), "c", 1, (&"one".into(), true)).await.unwrap(), None);
}

async fn a_receiver_that_failed_is_left_alone_for_a_while_and_in_the_end_for_good(backend: Backend) {
    let store = with_config(&backend).await;
    let cursor = open(&store, "one", true).await;
    add(&store, 1).await;
    let mut progress = PushProgress { sent: 1, failures: 1, wait: Duration::from_millis(500), then: PushThen::Leaves };
    assert!(!cursors(&store).advance(&cursor, &progress).await.unwrap());
    assert!(claim_left(&store, "two").await.is_empty());
    tokio::time::sleep(progress.wait).await;
    let taken = claim_left(&store, "two").await;
    assert_eq!((taken.len(), taken[0].failures), (1, 1));
    progress = PushProgress { failures: MAX_PUSH_FAILURES, wait: Duration::ZERO, ..progress };
    assert!(!cursors(&store).advance(&taken[0], &progress).await.unwrap());
    assert!(claim_left(&store, "one").await.is_empty() && claim(&store, "one").await.is_empty());
}

#[tokio::test]
async fn a_store_of_one_process_has_no_cursors() {
    assert!(memory(annex_conversation::MemoryBounds::default()).push_cursors().is_none());
    let folder = tempfile::tempdir().unwrap();
    let store = Backend::Sqlite(folder.path().join("conversations.db")).store().await;
    assert!(store.push_cursors().is_none());
}
