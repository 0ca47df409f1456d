//! Concurrent changes by several processes.

use std::sync::Arc;

use annex_keyvalue::{KeyValueError, KeyValueStore, Quota, Space, SqliteKeyValueStore};

use crate::cluster::Scratch;
use crate::{ROOMY, own, own_in, postgres_in, task};

/// Runs a test on each kind of database, with two stores on one database, as two processes have them.
async fn check_two(test: impl AsyncFn([Arc<dyn KeyValueStore>; 2])) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let open = async || Arc::new(SqliteKeyValueStore::open(&path).await.expect("the file opens"));
    test([open().await, open().await]).await;
    let Some(scratch) = Scratch::create().await else { return };
    test([postgres_in(&scratch).await, postgres_in(&scratch).await]).await;
    scratch.remove().await;
}

/// Makes forty concurrent calls, alternating between both stores.
async fn forty<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &[Arc<dyn KeyValueStore>; 2],
    call: impl Fn(Arc<dyn KeyValueStore>, usize) -> F,
) -> Vec<T> {
    let calls: Vec<_> = (0..20)
        .flat_map(|number| stores.iter().zip([2 * number, 2 * number + 1]))
        .map(|(store, number)| tokio::spawn(call(Arc::clone(store), number)))
        .collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.expect("no panic"));
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_at_once_all_count() {
    check_two(async |stores| {
        let mut counts =
            forty(&stores, |store, _| async move { store.increment(&own(), "n", 1, &ROOMY).await.expect("a counter") })
                .await;
        counts.sort_unstable();
        assert_eq!(counts, (1..=40).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_for_keys_that_are_set_at_once() {
    let of_bucket = Quota { max_keys: 7, ..ROOMY };
    let of_all = Quota { max_scoped_keys: 7, ..ROOMY };
    check_two(async |stores| {
        let set = |space: Space, quota: Quota| {
            move |store: Arc<dyn KeyValueStore>, number: usize| {
                let of_task = own_in(task("ada", &number.to_string()));
                let space = if space.scope.kind.ends() { of_task } else { space.clone() };
                async move { store.set(&space, &number.to_string(), Vec::new(), &quota).await.is_ok() }
            }
        };
        let lasting = forty(&stores, set(own(), of_bucket)).await;
        assert_eq!(lasting.into_iter().filter(|is_set| *is_set).count(), 7);
        let of_tasks = forty(&stores, set(own_in(task("ada", "t")), of_all)).await;
        assert_eq!(of_tasks.into_iter().filter(|is_set| *is_set).count(), 7);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_stays_exact_under_concurrent_changes() {
    let quota = Quota { max_scoped_keys: 5, max_scoped_bytes: 5 * 11, ..ROOMY };
    check_two(async |stores| {
        let space = |number: usize| own_in(task("ada", &(number % 3).to_string()));
        forty(&stores, |store, number| async move {
            let key = (number % 2).to_string();
            match number % 5 {
                0 => store.delete(&space(number), &key).await.expect("a store"),
                1 => store.remove(&space(number).scope).await.expect("a store"),
                _ => store.set(&space(number), &key, vec![0; number % 10], &ROOMY).await.expect("room"),
            }
        })
        .await;
        for number in 0..3 {
            stores[0].remove(&space(number).scope).await.expect("a store");
        }
        let set = async |key: &str| stores[1].set(&own_in(task("eve", "t")), key, vec![0; 10], &quota).await;
        for number in 0..5 {
            set(&number.to_string()).await.expect("nothing else is counted");
        }
        assert!(matches!(set("5").await, Err(KeyValueError::TooManyScopedKeys { limit: 5 })));
    })
    .await;
}
