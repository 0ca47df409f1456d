//! Places of turns that all processes count together.

use std::sync::Arc;

use annex_database::PostgresConnections;
use annex_leases::{Lease, TurnPlaces};

use crate::clock::Clock;
use crate::cluster::Scratch;

async fn open(url: &str) -> (Arc<Lease>, TurnPlaces) {
    let connections = PostgresConnections::new(url, 4).unwrap();
    let lease = Arc::new(Lease::open(&connections, None).await.unwrap());
    let places = TurnPlaces::open(&connections, Arc::clone(&lease)).await.unwrap();
    (lease, places)
}

/// A process, after the first renewal of its lease.
async fn process(clock: &mut Clock) -> (Arc<Lease>, TurnPlaces) {
    let (lease, places) = open(clock.url()).await;
    clock.until_renewed(lease.replica().id()).await;
    (lease, places)
}

#[tokio::test(start_paused = true)]
async fn the_places_of_a_killed_process_count_until_its_lease_is_over() {
    let Some(mut clock) = Clock::create().await else { return };
    let killed = process(&mut clock).await;
    let (lease, places) = process(&mut clock).await;
    let take = async |places: &TurnPlaces, id| places.take("acme", "ada", id, 3).await.unwrap();
    for id in ["k-1", "k-2"] {
        assert!(take(&killed.1, id).await);
    }
    assert!(take(&places, "o-1").await);
    drop(killed);
    for _ in 0..3 {
        clock.renew(&[&|| lease.replica().id().to_owned()]).await;
        assert!(!take(&places, "o-2").await);
        assert_eq!(places.processes().await.unwrap(), 2);
    }
    clock.renew(&[&|| lease.replica().id().to_owned()]).await;
    assert_eq!(places.processes().await.unwrap(), 1);
    assert!(take(&places, "o-2").await);
    assert!(take(&places, "o-3").await);
    assert!(!take(&places, "o-4").await);
    // The rows of the killed process go with the next sweep, and no others.
    lease.forget_gone().await.unwrap();
    assert_eq!(clock.number("SELECT count(*) FROM turn_place").await, 3);
    clock.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_calls_at_the_same_time_no_more_get_a_place_than_may() {
    let Some(scratch) = Scratch::create().await else { return };
    let processes = [open(scratch.url()).await, open(scratch.url()).await].map(|(_, places)| Arc::new(places));
    let taking = (0..12).map(|number| {
        let places = Arc::clone(&processes[number % 2]);
        tokio::spawn(async move { places.take("acme", "ada", &format!("p-{number}"), 3).await.unwrap() })
    });
    let mut taken = 0;
    for place in taking.collect::<Vec<_>>() {
        taken += usize::from(place.await.unwrap());
    }
    assert_eq!(taken, 3);
    assert!(processes[0].take("acme", "eve", "p-eve", 3).await.unwrap(), "another caller has places of its own");
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_given_back_is_free_and_may_be_given_back_again() {
    let Some(scratch) = Scratch::create().await else { return };
    let (_lease, places) = open(scratch.url()).await;
    assert!(places.take("acme", "ada", "p-1", 1).await.unwrap());
    assert!(!places.take("acme", "ada", "p-2", 1).await.unwrap());
    for _ in 0..2 {
        places.give_back("p-1").await.unwrap();
    }
    assert!(places.take("acme", "ada", "p-2", 1).await.unwrap());
    scratch.remove().await;
}
