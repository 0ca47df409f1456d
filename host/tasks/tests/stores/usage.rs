//! What tenants have used.

use annex_tasks::Consumption;

use crate::fixture::{Restart, Store};

on_every_store! {
    what_processes_add_in_one_hour_is_summed,
    the_costliest_come_first_by_their_cpu_time_and_then_by_their_requests,
    hours_that_are_forgotten_count_no_more,
    a_name_that_no_tenant_has_has_used_nothing,
}

across_a_restart! {
    use_outlives_the_process,
}

fn used(requests: u64, cpu_micros: u64) -> Consumption {
    Consumption { requests, refused: 1, cpu_micros, tokens: 2 }
}

async fn add(store: &Store, hour: u64, rows: &[(&str, Consumption)]) {
    let rows: Vec<_> = rows.iter().map(|(name, used)| ((*name).to_owned(), *used)).collect();
    store.usage().add(hour, &rows).await.unwrap();
}

async fn what_processes_add_in_one_hour_is_summed(store: Store) {
    let adding = (0..8).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            // In another order each time, as different processes have them.
            let mut rows = [("a", used(1, 10)), ("b", used(2, 20)), ("c", used(3, 30))];
            rows.rotate_left(number % 3);
            add(&store, 5, &rows).await;
        })
    });
    for added in adding.collect::<Vec<_>>() {
        added.await.unwrap();
    }
    let of_b = Consumption { requests: 16, refused: 8, cpu_micros: 160, tokens: 16 };
    assert_eq!(store.usage().of_tenant("b", 5).await.unwrap(), of_b);
    add(&store, 6, &[("b", used(1, 1))]).await;
    assert_eq!(store.usage().of_tenant("b", 6).await.unwrap(), used(1, 1));
    assert_eq!(store.usage().of_tenant("b", 0).await.unwrap().requests, 17);
    assert_eq!(store.usage().of_tenant("b", 7).await.unwrap(), Consumption::default());
}

async fn the_costliest_come_first_by_their_cpu_time_and_then_by_their_requests(store: Store) {
    add(&store, 1, &[("idle", used(1, 0)), ("busy", used(9, 0)), ("heavy", used(1, 7)), ("also", used(1, 0))]).await;
    add(&store, 2, &[("idle", used(1, 9))]).await;
    let names = async |since, limit| {
        let costliest = store.usage().costliest(since, limit).await.unwrap();
        costliest.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(0, 10).await, ["idle", "heavy", "busy", "also"]);
    assert_eq!(names(0, 2).await, ["idle", "heavy"]);
    assert_eq!(names(2, 10).await, ["idle"]);
    let first = store.usage().costliest(0, 1).await.unwrap();
    assert_eq!(first, [("idle".to_owned(), Consumption { requests: 2, refused: 2, cpu_micros: 9, tokens: 4 })]);
}

async fn hours_that_are_forgotten_count_no_more(store: Store) {
    for hour in 1..4 {
        add(&store, hour, &[("a", used(1, 1))]).await;
    }
    store.usage().forget_before(3).await.unwrap();
    assert_eq!(store.usage().of_tenant("a", 0).await.unwrap(), used(1, 1));
}

async fn a_name_that_no_tenant_has_has_used_nothing(store: Store) {
    for name in ["", "none", "\0"] {
        assert_eq!(store.usage().of_tenant(name, 0).await.unwrap(), Consumption::default(), "{name:?}");
    }
    assert!(store.usage().costliest(0, 10).await.unwrap().is_empty());
}

async fn use_outlives_the_process(restart: &Restart) {
    let store = restart.open().await;
    add(&store, 1, &[("a", used(3, 4))]).await;
    let store = restart.after(store).await;
    assert_eq!(store.usage().of_tenant("a", 0).await.unwrap(), used(3, 4));
}
