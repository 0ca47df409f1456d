//! Concurrent appends by many tasks.

use std::future::Future;

use annex_conversation::Window;
use tokio::task::JoinSet;

use crate::support::{Backend, Says, add, create, delta, event, events, find, key, make, open};

on_every_store!(
    of_ten_beginnings_of_one_conversation_one_succeeds,
    of_ten_writers_at_one_position_one_succeeds,
    ten_conversations_that_set_keys_of_one_user_lose_none,
    conversations_that_set_the_same_shared_keys_do_not_hinder_each_other,
    parallel_appends_within_one_turn_all_succeed,
);

/// Runs `work` in ten tasks at the same time. Returns the results.
async fn ten_at_once<T, F>(work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    at_once(10, work).await
}

/// Runs `work` in this number of tasks at the same time. Returns the results.
pub(crate) async fn at_once<T, F>(tasks: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    (0..tasks).map(work).collect::<JoinSet<T>>().join_all().await
}

async fn of_ten_beginnings_of_one_conversation_one_succeeds(backend: Backend) {
    let store = backend.store().await;
    let results = ten_at_once(|index| {
        let store = store.clone();
        async move { make(&store, &key("s"), delta(&format!(r#"{{"user:k{index}":1}}"#))).await }
    });
    let results = results.await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let refusals = results.iter().filter_map(|result| result.as_ref().err());
    assert_eq!(
        refusals.filter(|error| error.to_string() == "the writer has seen 0 entries, and 1 are stored").count(),
        9
    );
    assert_eq!(find(&store, "s").await.unwrap().state.merged().len(), 1);
}

async fn of_ten_writers_at_one_position_one_succeeds(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", "{}").await;
    let results = ten_at_once(|index| {
        let store = store.clone();
        async move { add(&store, "s", 1, event(&index.to_string(), r#"{"a":1}"#)).await }
    });
    let results = results.await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let stale = "the writer has seen 1 entries, and 2 are stored";
    let refusals = results.iter().filter_map(|result| result.as_ref().err());
    assert_eq!(refusals.filter(|error| error.to_string() == stale).count(), 9);
    assert_eq!(events(&store, "s").await.len(), 1);
}

async fn ten_conversations_that_set_keys_of_one_user_lose_none(backend: Backend) {
    let store = backend.store().await;
    let appended = ten_at_once(|index| {
        let store = store.clone();
        async move {
            let path = format!("ann/{index}");
            create(&store, &path, "{}").await;
            let change = format!(r#"{{"user:k{index}":{index},"app:k{index}":{index}}}"#);
            add(&store, &path, 1, event("e", &change)).await.is_ok()
        }
    });
    assert_eq!(appended.await, [true; 10]);
    create(&store, "ann/reader", "{}").await;
    let state = find(&store, "ann/reader").await.unwrap().state.merged();
    assert_eq!(state.len(), 20);
    assert!((0..10).all(|index| state.get(&format!("user:k{index}")).unwrap().get() == index.to_string()));
}

async fn conversations_that_set_the_same_shared_keys_do_not_hinder_each_other(backend: Backend) {
    let store = backend.store().await;
    let appended = ten_at_once(|index| {
        let store = store.clone();
        async move {
            let path = format!("ann/{index}");
            let mut number = 0;
            for round in 0..10 {
                // In another order each time, so that locks in the order of the keys would cross.
                let keys = if index % 2 == 0 { ["a", "b", "c"] } else { ["c", "b", "a"] };
                let change = keys.map(|key| format!(r#""user:{key}":{round},"app:{key}":{round}"#)).join(",");
                let change = event(&round.to_string(), &format!("{{{change}}}"));
                number = add(&store, &path, number, change).await.unwrap();
            }
            number
        }
    });
    assert_eq!(appended.await, [10; 10]);
    let state = store.conversation(&key("ann/other"), Window::NONE).await.unwrap().state.merged();
    assert_eq!(state.len(), 6);
}

async fn parallel_appends_within_one_turn_all_succeed(backend: Backend) {
    let store = backend.store().await;
    let session = open(&store, "s").await;
    ten_at_once(|task| {
        let session = session.clone();
        async move {
            for round in 0..2 {
                let id = format!("{task}-{round}");
                session.say(event(&id, &format!(r#"{{"k{id}":1,"temp:k{id}":1}}"#))).await.unwrap();
            }
        }
    })
    .await;
    assert_eq!(session.history(100).await.unwrap().len(), 20);
    assert_eq!(session.own_state().len(), 20);
    assert_eq!(session.state().len(), 40);
    assert_eq!(find(&store, "s").await.unwrap().number, 20);
}
