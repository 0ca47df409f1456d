//! The usage of tenants.

use annex_tenants::{Consumption, TenantStores};

use crate::fixture::Restart;

on_every_store! {
    what_processes_add_in_one_hour_is_summed,
    the_costliest_come_first_by_their_cpu_time_and_then_by_their_requests,
    hours_that_are_forgotten_count_no_more,
    a_name_that_no_tenant_has_has_used_nothing,
    numbers_beyond_what_databases_count_fail_nothing_and_are_kept_as_the_bound_of_an_hour,
}

across_a_restart! {
    use_outlives_the_process,
}

fn used(requests: u64, cpu_micros: u64) -> Consumption {
    Consumption { requests, refused: 1, cpu_micros, tokens: 2 }
}

async fn add(stores: &TenantStores, hour: u64, rows: &[(&str, Consumption)]) {
    let rows: Vec<_> = rows.iter().map(|(name, used)| ((*name).to_owned(), *used)).collect();
    stores.usage.add(hour, &rows).await.unwrap();
}

async fn what_processes_add_in_one_hour_is_summed(stores: TenantStores) {
    let adding = (0..8).map(|number| {
        let stores = stores.clone();
        tokio::spawn(async move {
            // In another order each time, as different processes have them.
            let mut rows = [("a", used(1, 10)), ("b", used(2, 20)), ("c", used(3, 30))];
            rows.rotate_left(number % 3);
            add(&stores, 5, &rows).await;
        })
    });
    for added in adding.collect::<Vec<_>>() {
        added.await.unwrap();
    }
    let of_b = Consumption { requests: 16, refused: 8, cpu_micros: 160, tokens: 16 };
    assert_eq!(stores.usage.of_tenant("b", 5).await.unwrap(), of_b);
    add(&stores, 6, &[("b", used(1, 1))]).await;
    assert_eq!(stores.usage.of_tenant("b", 6).await.unwrap(), used(1, 1));
    assert_eq!(stores.usage.of_tenant("b", 0).await.unwrap().requests, 17);
    assert_eq!(stores.usage.of_tenant("b", 7).await.unwrap(), Consumption::default());
}

async fn the_costliest_come_first_by_their_cpu_time_and_then_by_their_requests(stores: TenantStores) {
    add(&stores, 1, &[("idle", used(1, 0)), ("busy", used(9, 0)), ("heavy", used(1, 7)), ("also", used(1, 0))]).await;
    add(&stores, 2, &[("idle", used(1, 9))]).await;
    let names = async |since, limit| {
        let costliest = stores.usage.costliest(since, limit).await.unwrap();
        costliest.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(0, 10).await, ["idle", "heavy", "busy", "also"]);
    assert_eq!(names(0, 2).await, ["idle", "heavy"]);
    assert_eq!(names(2, 10).await, ["idle"]);
    let first = stores.usage.costliest(0, 1).await.unwrap();
    assert_eq!(first, [("idle".to_owned(), Consumption { requests: 2, refused: 2, cpu_micros: 9, tokens: 4 })]);
}

async fn hours_that_are_forgotten_count_no_more(stores: TenantStores) {
    for hour in 1..4 {
        add(&stores, hour, &[("a", used(1, 1))]).await;
    }
    stores.usage.forget_before(3).await.unwrap();
    assert_eq!(stores.usage.of_tenant("a", 0).await.unwrap(), used(1, 1));
}

async fn a_name_that_no_tenant_has_has_used_nothing(stores: TenantStores) {
    for name in ["", "none", "\0"] {
        assert_eq!(stores.usage.of_tenant(name, 0).await.unwrap(), Consumption::default(), "{name:?}");
    }
    assert!(stores.usage.costliest(0, 10).await.unwrap().is_empty());
}

async fn numbers_beyond_what_databases_count_fail_nothing_and_are_kept_as_the_bound_of_an_hour(stores: TenantStores) {
    const MOST: u64 = 1 << 50;
    let huge = |number| Consumption { requests: number, refused: number, cpu_micros: number, tokens: number };
    // The second addition would be beyond the largest number of a database, and so would be the sum of the hours.
    for hour in 0..168 {
        add(&stores, hour, &[("huge", huge(u64::MAX)), ("small", used(1, 1))]).await;
    }
    for number in [1, MOST, 1 << 62, u64::MAX] {
        add(&stores, 0, &[("huge", huge(number))]).await;
    }
    assert_eq!(stores.usage.of_tenant("huge", 167).await.unwrap(), huge(MOST));
    assert_eq!(stores.usage.of_tenant("huge", 0).await.unwrap(), huge(168 * MOST));
    let small = Consumption { requests: 168, refused: 168, cpu_micros: 168, tokens: 336 };
    let costliest = stores.usage.costliest(0, 10).await.unwrap();
    assert_eq!(costliest, [("huge".to_owned(), huge(168 * MOST)), ("small".to_owned(), small)]);
    add(&stores, 200, &[("huge", huge(MOST - 1))]).await;
    add(&stores, 200, &[("huge", huge(1))]).await;
    assert_eq!(stores.usage.of_tenant("huge", 200).await.unwrap(), huge(MOST));
}

async fn use_outlives_the_process(restart: &Restart) {
    let stores = restart.open().await;
    add(&stores, 1, &[("a", used(3, 4))]).await;
    let stores = restart.after(stores).await;
    assert_eq!(stores.usage.of_tenant("a", 0).await.unwrap(), used(3, 4));
}
