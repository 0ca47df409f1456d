//! Cases for PostgreSQL only.

use std::time::Duration;

use annex_database::PostgresConnections;
use annex_keyvalue::{KeyValueError, KeyValueStore, PostgresKeyValueStore};
use sqlx::Connection as _;

use crate::cluster::Scratch;
use crate::{ROOMY, own, own_in, postgres_in, task};

#[tokio::test]
async fn a_scope_whose_turn_another_process_may_still_run_is_not_listed() {
    let Some(scratch) = Scratch::create().await else { return };
    let connections = PostgresConnections::new(scratch.url(), 1).expect("a URL");
    let store = PostgresKeyValueStore::open(&connections, Duration::from_secs(60)).await.expect("the database opens");
    for name in ["old", "new"] {
        store.set(&own_in(task("ada", name)), "a", Vec::new(), &ROOMY).await.expect("room");
    }
    let mut connection = sqlx::PgConnection::connect(scratch.url()).await.expect("a database");
    let age = "UPDATE entry SET set_at = set_at - INTERVAL '61 seconds'";
    sqlx::query(age).execute(&mut connection).await.expect("valid SQL");
    connection.close().await.expect("closed");
    store.set(&own_in(task("ada", "new")), "a", b"again".to_vec(), &ROOMY).await.expect("room");
    assert_eq!(store.scopes(None).await.expect("a page"), [task("ada", "old")]);
    drop(store);
    scratch.remove().await;
}

#[tokio::test]
async fn keys_survive_reopening_the_database() {
    let Some(scratch) = Scratch::create().await else { return };
    let store = postgres_in(&scratch).await;
    store.set(&own(), "a", b"1".to_vec(), &ROOMY).await.expect("room");
    store.close().await;
    assert!(matches!(store.get(&own(), "a").await, Err(KeyValueError::Unavailable(_))));
    let store = postgres_in(&scratch).await;
    assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
    drop(store);
    scratch.remove().await;
}
