//! Tenants that are added while servers run.

use std::collections::HashSet;

use annex_tenants::TenantChange::{Other, Stored};
use annex_tenants::{
    ChangedTenant, Expectation, ListedTenant, MAX_KEY_BYTES, StoredTenant, TenantState, TenantStoreError, TenantStores,
};

use crate::fixture::Restart;

on_every_store! {
    a_tenant_is_changed_by_whoever_knows_its_last_change,
    a_number_is_never_another_change_s,
    tenants_are_listed_in_pages_by_name,
    of_changes_that_believe_the_same_one_is_stored,
    changes_are_told_of_in_their_order,
    names_that_no_store_could_keep_are_refused_and_find_nothing,
}

across_a_restart! {
    tenants_outlive_the_process_and_removals_are_told_of,
}

const ACTIVE: TenantState = TenantState::Active;

async fn add(stores: &TenantStores, name: &str) -> u64 {
    match stores.tenants.put(name, Expectation::Absent, ACTIVE, "text").await.unwrap() {
        Stored(rev) => rev,
        Other(rev) => panic!("{name} is there with {rev:?}"),
    }
}

async fn a_tenant_is_changed_by_whoever_knows_its_last_change(stores: TenantStores) {
    let tenants = &stores.tenants;
    assert_eq!(tenants.find("acme").await.unwrap(), None);
    assert_eq!(tenants.put("acme", Expectation::Rev(1), ACTIVE, "x").await.unwrap(), Other(None));
    assert_eq!(tenants.remove("acme", 1).await.unwrap(), Other(None));
    assert_eq!(tenants.put("acme", Expectation::Absent, ACTIVE, "α = 1").await.unwrap(), Stored(1));
    assert_eq!(tenants.put("acme", Expectation::Absent, ACTIVE, "x").await.unwrap(), Other(Some(1)));
    assert_eq!(tenants.put("acme", Expectation::Rev(7), ACTIVE, "x").await.unwrap(), Other(Some(1)));
    let first = StoredTenant { name: "acme".to_owned(), rev: 1, state: ACTIVE, config: "α = 1".to_owned() };
    assert_eq!(tenants.find("acme").await.unwrap().as_ref(), Some(&first));
    let suspended = TenantState::Suspended;
    assert_eq!(tenants.put("acme", Expectation::Rev(1), suspended, "α = 2").await.unwrap(), Stored(2));
    let second = StoredTenant { rev: 2, state: suspended, config: "α = 2".to_owned(), ..first };
    assert_eq!(tenants.find("acme").await.unwrap(), Some(second));
    assert_eq!(tenants.remove("acme", 1).await.unwrap(), Other(Some(2)));
    assert_eq!(tenants.remove("acme", 2).await.unwrap(), Stored(3));
    assert_eq!(tenants.find("acme").await.unwrap(), None);
    assert!(tenants.list("", 10).await.unwrap().is_empty());
    assert_eq!(tenants.remove("acme", 3).await.unwrap(), Other(None), "what is removed has no number");
}

async fn a_number_is_never_another_change_s(stores: TenantStores) {
    let tenants = &stores.tenants;
    assert_eq!((add(&stores, "acme").await, add(&stores, "globex").await), (1, 2));
    assert_eq!(tenants.remove("acme", 1).await.unwrap(), Stored(3));
    assert_eq!(add(&stores, "acme").await, 4);
    assert_eq!(tenants.put("acme", Expectation::Rev(1), ACTIVE, "x").await.unwrap(), Other(Some(4)));
    assert_eq!(tenants.last_change().await.unwrap(), 4);
}

async fn tenants_are_listed_in_pages_by_name(stores: TenantStores) {
    for name in ["b", "a_b", "a-b", "c", "a"] {
        add(&stores, name).await;
    }
    let names = async |after: &str, limit| {
        let listed = stores.tenants.list(after, limit).await.unwrap();
        listed.into_iter().map(|tenant| tenant.name).collect::<Vec<_>>()
    };
    assert_eq!(names("", 10).await, ["a", "a-b", "a_b", "b", "c"]);
    assert_eq!(names("", 2).await, ["a", "a-b"]);
    assert_eq!(names("a-b", 2).await, ["a_b", "b"]);
    assert!(names("c", 2).await.is_empty());
    let last = ListedTenant { name: "c".to_owned(), rev: 4, state: ACTIVE };
    assert_eq!(stores.tenants.list("b", 2).await.unwrap(), [last]);
}

async fn of_changes_that_believe_the_same_one_is_stored(stores: TenantStores) {
    let race = async |expectation| {
        let changes = (0..8).map(|number| {
            let stores = stores.clone();
            let text = number.to_string();
            let change = async move { stores.tenants.put("acme", expectation, ACTIVE, &text).await.unwrap() };
            tokio::spawn(change)
        });
        let mut stored = Vec::new();
        for change in changes.collect::<Vec<_>>() {
            if let Stored(rev) = change.await.unwrap() {
                stored.push(rev);
            }
        }
        let [rev] = stored.try_into().expect("one");
        assert_eq!(stores.tenants.find("acme").await.unwrap().map(|tenant| tenant.rev), Some(rev));
        rev
    };
    let rev = race(Expectation::Absent).await;
    assert!(race(Expectation::Rev(rev)).await > rev);
}

async fn changes_are_told_of_in_their_order(stores: TenantStores) {
    // Side by side, so that a number that is committed before a lower one would be found.
    let seen = {
        let stores = stores.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut last = 0;
            while seen.len() < 40 {
                for ChangedTenant { name, rev, state } in stores.tenants.changed_after(last, 7).await.unwrap() {
                    assert!(rev > last && state == Some(ACTIVE));
                    last = rev;
                    seen.push(name);
                }
                tokio::task::yield_now().await;
            }
            seen
        })
    };
    let adding = (0..40).map(|number| {
        let stores = stores.clone();
        tokio::spawn(async move { add(&stores, &format!("t-{number}")).await })
    });
    let mut numbers = HashSet::new();
    for added in adding.collect::<Vec<_>>() {
        numbers.insert(added.await.unwrap());
    }
    let seen: HashSet<String> = seen.await.unwrap().into_iter().collect();
    assert_eq!((numbers.len(), seen.len()), (40, 40), "each once");
    assert!(stores.tenants.changed_after(40, 10).await.unwrap().is_empty());
}

async fn names_that_no_store_could_keep_are_refused_and_find_nothing(stores: TenantStores) {
    for name in ["a\0b", &"a".repeat(MAX_KEY_BYTES + 1)] {
        let refused = stores.tenants.put(name, Expectation::Absent, ACTIVE, "x").await.unwrap_err();
        assert!(matches!(refused, TenantStoreError::InvalidKey { .. }), "{refused}");
        assert_eq!(stores.tenants.find(name).await.unwrap(), None);
        assert_eq!(stores.tenants.remove(name, 1).await.unwrap(), Other(None));
    }
}

async fn tenants_outlive_the_process_and_removals_are_told_of(restart: &Restart) {
    let stores = restart.open().await;
    add(&stores, "acme").await;
    let rev = add(&stores, "globex").await;
    let stores = restart.after(stores).await;
    assert_eq!(stores.tenants.find("acme").await.unwrap().map(|tenant| tenant.config), Some("text".to_owned()));
    assert_eq!(stores.tenants.remove("acme", 1).await.unwrap(), Stored(rev + 1));
    let changed = stores.tenants.changed_after(rev, 10).await.unwrap();
    assert_eq!(changed, [ChangedTenant { name: "acme".to_owned(), rev: rev + 1, state: None }]);
}
