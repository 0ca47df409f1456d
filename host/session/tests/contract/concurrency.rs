//! The same from many tasks at once.

use std::future::Future;

use annex_session::EventFilter;
use tokio::task::JoinSet;

use crate::support::{Backend, add, create, delta, event, events, find, ids, key, open};

on_every_store!(
    of_ten_creates_of_one_session_one_succeeds,
    of_ten_writers_that_read_the_same_revision_one_succeeds,
    ten_sessions_that_set_keys_of_one_user_lose_none,
    sessions_that_set_the_same_shared_keys_do_not_hinder_each_other,
    parallel_appends_within_one_turn_all_succeed,
    what_is_refused_keeps_nobody_else_back,
);

/// Runs `work` in ten tasks and returns their results.
async fn ten_at_once<T, F>(work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    at_once(10, work).await
}

/// Runs `work` in `tasks` tasks and returns their results.
pub(crate) async fn at_once<T, F>(tasks: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    (0..tasks).map(work).collect::<JoinSet<T>>().join_all().await
}

async fn of_ten_creates_of_one_session_one_succeeds(backend: Backend) {
    let service = backend.service().await;
    let results = ten_at_once(|index| {
        let service = service.clone();
        async move { service.create(&key("s"), delta(&format!(r#"{{"user:k{index}":1}}"#))).await }
    });
    let results = results.await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let refusals = results.iter().filter_map(|result| result.as_ref().err());
    assert_eq!(refusals.filter(|error| error.to_string() == "session s already exists").count(), 9);
    assert_eq!(find(&service, "s").await.unwrap().state.merged().len(), 1);
}

async fn of_ten_writers_that_read_the_same_revision_one_succeeds(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    let results = ten_at_once(|index| {
        let service = service.clone();
        async move { add(&service, "s", 1, event(&index.to_string(), r#"{"a":1}"#)).await }
    });
    let results = results.await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let stale = "stale session: expected revision 1, found 2";
    let refusals = results.iter().filter_map(|result| result.as_ref().err());
    assert_eq!(refusals.filter(|error| error.to_string() == stale).count(), 9);
    assert_eq!(events(&service, "s").await.len(), 1);
}

async fn ten_sessions_that_set_keys_of_one_user_lose_none(backend: Backend) {
    let service = backend.service().await;
    let appended = ten_at_once(|index| {
        let service = service.clone();
        async move {
            let path = format!("ann/{index}");
            create(&service, &path, "{}").await;
            let change = format!(r#"{{"user:k{index}":{index},"app:k{index}":{index}}}"#);
            add(&service, &path, 1, event("e", &change)).await.is_ok()
        }
    });
    assert_eq!(appended.await, [true; 10]);
    create(&service, "ann/reader", "{}").await;
    let state = find(&service, "ann/reader").await.unwrap().state.merged();
    assert_eq!(state.len(), 20);
    assert!((0..10).all(|index| state.get(&format!("user:k{index}")).unwrap().get() == index.to_string()));
}

async fn sessions_that_set_the_same_shared_keys_do_not_hinder_each_other(backend: Backend) {
    let service = backend.service().await;
    let appended = ten_at_once(|index| {
        let service = service.clone();
        async move {
            let path = format!("ann/{index}");
            let mut revision = 0;
            for round in 0..10 {
                // In another order each time, so that locks in the order of the keys would cross.
                let keys = if index % 2 == 0 { ["a", "b", "c"] } else { ["c", "b", "a"] };
                let change = keys.map(|key| format!(r#""user:{key}":{round},"app:{key}":{round}"#)).join(",");
                let change = event(&round.to_string(), &format!("{{{change}}}"));
                revision = add(&service, &path, revision, change).await.unwrap().revision;
            }
            revision
        }
    });
    assert_eq!(appended.await, [10; 10]);
    let state = service.read(&key("ann/other"), EventFilter::NONE).await.unwrap().state.merged();
    assert_eq!(state.len(), 6);
}

async fn parallel_appends_within_one_turn_all_succeed(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    ten_at_once(|task| {
        let session = session.clone();
        async move {
            for round in 0..2 {
                let id = format!("{task}-{round}");
                session.append(event(&id, &format!(r#"{{"k{id}":1,"temp:k{id}":1}}"#))).await.unwrap();
            }
        }
    })
    .await;
    assert_eq!(session.history(100).await.unwrap().len(), 20);
    assert_eq!(session.snapshot().len(), 20);
    assert_eq!(session.state().len(), 40);
    assert_eq!(find(&service, "s").await.unwrap().revision, 20);
}

/// Forty writers, each in a conversation of its own. Every second writer is stale, repeats an event or sends a
/// conflicting event.
async fn what_is_refused_keeps_nobody_else_back(backend: Backend) {
    let service = backend.service().await;
    for index in 0..40 {
        add(&service, &format!("s{index}"), 0, event("first", r#"{"a":1}"#)).await.unwrap();
    }
    let results = at_once(40, |index| {
        let service = service.clone();
        async move {
            let path = format!("s{index}");
            let appended = match index % 6 {
                0 => add(&service, &path, 7, event("second", "{}")).await,
                2 => add(&service, &path, 0, event("first", r#"{"a":1}"#)).await,
                4 => add(&service, &path, 1, event("first", r#"{"a":2}"#)).await,
                _ => add(&service, &path, 1, event("second", "{}")).await,
            };
            let appended = appended.map(|appended| (appended.revision, appended.repeated));
            (index, appended.map_err(|error| error.to_string()))
        }
    });
    for (index, result) in results.await {
        let (expected, kept): (_, &[&str]) = match index % 6 {
            0 => (Err("stale session: expected revision 7, found 1".to_owned()), &["first"]),
            2 => (Ok((1, true)), &["first"]),
            4 => (Err("event first is stored already with other content".to_owned()), &["first"]),
            _ => (Ok((2, false)), &["first", "second"]),
        };
        assert_eq!(result, expected, "{index}");
        assert_eq!(ids(&events(&service, &format!("s{index}")).await), kept, "{index}");
    }
}
