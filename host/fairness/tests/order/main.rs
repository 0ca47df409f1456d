//! The order in which waiters get places.
#![cfg(test)]

use std::sync::{Arc, Mutex};

use annex_fairness::{FairPlaces, current_tenant, of_same_tenant, of_tenant};
use futures::FutureExt;

fn tenants() -> [Arc<str>; 2] {
    ["loud", "quiet"].map(Arc::from)
}

#[tokio::test]
async fn a_quiet_tenant_waits_for_at_most_one_waiter_of_a_loud_tenant() {
    let places = FairPlaces::new(1);
    let [loud, quiet] = tenants();
    let held = places.try_take().expect("it is free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for tenant in std::iter::repeat_n(&loud, 50).chain([&quiet, &quiet]) {
        let (places, tenant, noted) = (places.clone(), Arc::clone(tenant), Arc::clone(&order));
        let mut taking = Box::pin(async move {
            let _place = places.take(&tenant).await;
            noted.lock().expect("no panic").push(tenant);
        });
        assert!(taking.as_mut().now_or_never().is_none(), "all places are taken");
        waiting.push(taking);
    }
    drop(held);
    futures::future::join_all(waiting).await;
    let order = order.lock().expect("no panic");
    let places_of_quiet: Vec<usize> =
        order.iter().enumerate().filter(|(_, who)| **who == quiet).map(|(at, _)| at).collect();
    assert_eq!((places_of_quiet, order.len()), (vec![1, 3], 52));
    assert_eq!(places.free(), 1);
}

#[tokio::test]
async fn a_cancelled_waiter_loses_no_place_and_delays_no_other_waiter() {
    let places = FairPlaces::new(1);
    let [loud, quiet] = tenants();
    let held = places.try_take().expect("it is free");
    let mut given_up = Box::pin(places.take(&loud));
    let mut told = Box::pin(places.take(&loud));
    let mut next = Box::pin(places.take(&quiet));
    for waiting in [&mut given_up, &mut told, &mut next] {
        assert!(waiting.as_mut().now_or_never().is_none(), "all places are taken");
    }
    drop(given_up);
    // The place goes past the first waiter to the quiet tenant or to the loud tenant's second waiter. Whichever drops
    // it unread passes it to the other.
    drop(held);
    drop(told);
    let place = next.await;
    assert_eq!(places.free(), 0);
    drop(place);
    assert_eq!(places.free(), 1);
    assert!(places.try_take().is_some());
}

#[tokio::test]
async fn a_free_place_is_taken_at_once_and_never_ahead_of_waiters() {
    let places = FairPlaces::new(1);
    let [loud, quiet] = tenants();
    let first = places.take(&loud).now_or_never().expect("it is free");
    assert!(places.try_take().is_none());
    let mut waiting = Box::pin(places.take(&quiet));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(first);
    assert!(places.try_take().is_none(), "it is handed on");
    drop(waiting.await);
}

#[tokio::test]
async fn the_tenant_is_known_in_its_scope_and_nowhere_else() {
    assert_eq!(&*current_tenant(), "");
    let [loud, quiet] = tenants();
    let inner = of_tenant(quiet, async { current_tenant() });
    let (inner, outer) = of_tenant(loud, async { (inner.await, current_tenant()) }).await;
    assert_eq!((&*inner, &*outer, &*current_tenant()), ("quiet", "loud", ""));
}

#[tokio::test]
async fn a_spawned_task_keeps_its_tenant_only_if_wrapped() {
    let [loud, _] = tenants();
    let begun = of_tenant(Arc::clone(&loud), async {
        let same = tokio::spawn(of_same_tenant(async { current_tenant() }));
        let nobody = tokio::spawn(async { current_tenant() });
        (same.await.expect("a tenant"), nobody.await.expect("nobody"))
    });
    assert_eq!(begun.await, (loud, Arc::from("")));
}
