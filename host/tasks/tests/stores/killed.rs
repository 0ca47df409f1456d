//! Tasks of a process that has ended, on a clock that the test moves.

use std::time::Duration;

use annex_protocol::TaskState;
use annex_tasks::{PostgresTaskStore, TaskStore};

use crate::clock::Clock;
use crate::fixture::{OneByOne, owner, working};

const REASON: &str = "the server stopped";

/// A process, after the first renewal of its lease.
async fn connect(clock: &mut Clock) -> PostgresTaskStore {
    let store = PostgresTaskStore::connect(clock.url(), 4).await.unwrap();
    clock.until_renewed(store.replica().unwrap().id()).await;
    store
}

/// Lets time pass up to the next renewal of the store's lease, which comes.
async fn renew(clock: &mut Clock, store: &PostgresTaskStore) {
    clock.renew(&[&|| store.replica().unwrap().id().to_owned()]).await;
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_killed_process_is_taken_when_its_lease_is_over_and_not_before() {
    let Some(mut clock) = Clock::create().await else { return };
    let ada = owner("ada");
    let [killed, other] = [connect(&mut clock).await, connect(&mut clock).await];
    killed.begin(&ada, &working("t-1")).await.unwrap();
    other.begin(&ada, &working("t-2")).await.unwrap();
    drop(killed);
    for _ in 0..3 {
        renew(&mut clock, &other).await;
        assert!(other.recover_lost(REASON).await.unwrap().is_empty());
    }
    renew(&mut clock, &other).await;
    assert_eq!(other.recover_lost(REASON).await.unwrap(), ["t-1".into()]);
    let task = other.load(&ada, &"t-1".into()).await.unwrap().unwrap();
    assert_eq!(task.decode().unwrap().state(), TaskState::Failed);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_without_a_lease_takes_nothing_until_the_others_could_renew_theirs() {
    let Some(mut clock) = Clock::create().await else { return };
    let ada = owner("ada");
    let [killed, other] = [connect(&mut clock).await, connect(&mut clock).await];
    killed.begin(&ada, &working("t-1")).await.unwrap();
    let replica = other.replica().unwrap();
    drop(killed);
    // As when the database was away: no lease was renewed.
    clock.pass_in_database(Duration::from_secs(5)).await;
    assert!(other.recover_lost(REASON).await.unwrap().is_empty(), "its own lease is over too");
    renew(&mut clock, &other).await;
    assert_ne!(other.replica().unwrap().id(), replica.id());
    for _ in 0..3 {
        assert!(other.recover_lost(REASON).await.unwrap().is_empty());
        renew(&mut clock, &other).await;
    }
    renew(&mut clock, &other).await;
    assert_eq!(other.recover_lost(REASON).await.unwrap(), ["t-1".into()]);
    clock.remove().await;
}
