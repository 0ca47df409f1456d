//! A PostgreSQL database that is gone for a while, that a later version has changed, and that other work goes on in.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use annex_conversation::{AppendError, Limits, OpenError, PostgresStore, StoreError};
use annex_database::PostgresConnections;
use annex_protocol::TaskState;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::backend::{Backend, on_postgres};
use crate::cluster::Cluster;
use crate::support::{
    Says, add, create, event, events, find, ids, next_millisecond, open, state_of, sweep_conversations,
};
use crate::table;

/// A server of its own, which the test stops. `None`, after saying so, where there is no PostgreSQL.
async fn cluster() -> Option<(Cluster, Backend)> {
    let cluster = match tokio::task::spawn_blocking(Cluster::create).await.unwrap() {
        Ok(cluster) => cluster,
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED a PostgreSQL test: {reason}");
            return None;
        }
    };
    let backend = Backend::Postgres(cluster.url());
    backend.execute(table::CREATE).await;
    backend.execute(table::endless("one")).await;
    Some((cluster, backend))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_outlasts_a_database_that_crashes_and_nothing_is_lost() {
    let Some((cluster, backend)) = cluster().await else { return };
    let store = backend.store().await;
    let ended = open(&store, "ended").await;
    ended.say(event("e", "{}")).await.unwrap();
    let task = ended.task().await.id().clone();
    ended.close().await;
    let turn = open(&store, "s").await;
    for number in 0..20 {
        turn.say(event(&number.to_string(), &format!(r#"{{"n":{number},"user:n":{number}}}"#))).await.unwrap();
    }
    cluster.stop().unwrap();
    let without_turn = add(&store, "other", 0, event("e", "{}")).await.unwrap_err();
    assert!(matches!(without_turn, AppendError::Store(StoreError::Database(_))), "{without_turn}");
    let goes_on = tokio::spawn({
        let turn = turn.clone();
        async move { turn.say(event("20", r#"{"n":20}"#)).await }
    });
    // The turn tries while the server starts.
    tokio::task::block_in_place(|| cluster.start()).unwrap();
    assert_eq!(goes_on.await.unwrap().unwrap().number, 21);
    let expected: Vec<_> = (0..21).map(|number| number.to_string()).collect();
    assert_eq!(ids(&events(&store, "s").await), expected);
    assert_eq!(state_of(&store, "s").await, r#"{"n":20,"user:n":19}"#);
    let stored = store.task(&task).await.unwrap().unwrap();
    assert_eq!(stored.decode().unwrap().state(), TaskState::Completed);
    turn.close().await;
    assert_eq!(find(&store, "other").await, None);
    add(&store, "other", 0, event("e", "{}")).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_next_version_are_used_and_those_of_a_later_one_refused() {
    on_postgres(async |backend| {
        let Backend::Postgres(url) = &backend else { unreachable!("it is PostgreSQL") };
        drop(backend.store().await);
        let migrate = |version: i64| {
            format!(
                "INSERT INTO _sqlx_conversation_migrations (version, description, success, checksum, execution_time)
                VALUES ({version}, 'later', TRUE, '', 0)"
            )
        };
        let latest = annex_conversation::POSTGRES_MIGRATIONS.latest();
        backend.execute(migrate(latest + 1)).await;
        let store = backend.store().await;
        create(&store, "s", r#"{"a":1}"#).await;
        backend.execute(migrate(latest + 2)).await;
        let refused = refused(url.clone()).await;
        assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
        let reason = refused.source().unwrap().to_string();
        assert!(
            reason.contains(&format!("is at migration {}", latest + 2)) && reason.contains("start a later"),
            "{reason}"
        );
        assert_eq!(state_of(&store, "s").await, r#"{"a":1}"#);
    })
    .await;
}

/// The error with which a store does not open.
async fn refused(url: String) -> OpenError {
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: sqlx's migrations are no future that can be sent.
    let opened = tokio::task::spawn_blocking(move || {
        let connections = PostgresConnections::new(&url, 1)?;
        runtime.block_on(PostgresStore::open(&connections, Limits::default())).map(drop)
    });
    opened.await.unwrap().unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_database_that_is_not_reached_does_not_repeat_the_password() {
    for url in ["postgres://ada:hunter2@127.0.0.1:1/annex", "postgres://ada:hunter2@127.0.0.1:port/annex"] {
        let refused = refused(url.to_owned()).await;
        assert!(matches!(refused, OpenError::Database(_)), "{refused}");
        let cause = refused.source().unwrap();
        assert!(!format!("{refused} {refused:?} {cause} {cause:?}").contains("hunter2"));
    }
}

/// A sweep that waits for the row of the first conversation, which another transaction holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_spares_conversations_that_have_changed_since_it_looked() {
    on_postgres(async |backend| {
        let Backend::Postgres(url) = &backend else { unreachable!("it is PostgreSQL") };
        let store = backend.store().await;
        for path in ["old", "running", "changed", "old too"] {
            create(&store, path, "{}").await;
            next_millisecond().await;
        }
        let mut holder = PgConnection::connect(url).await.unwrap();
        let hold = "BEGIN; UPDATE conversation SET number = number WHERE context_id = 'old'";
        sqlx::raw_sql(hold).execute(&mut holder).await.unwrap();
        let sweeping = tokio::spawn({
            let store = store.clone();
            async move { sweep_conversations(&store, Duration::ZERO, u64::MAX).await }
        });
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while backend.number(waiting).await == 0 {
            assert!(!sweeping.is_finished(), "the sweep waits for nothing");
        }
        let running = open(&store, "running").await;
        running.say(event("e", "{}")).await.unwrap();
        let changed = open(&store, "changed").await;
        changed.say(event("e", "{}")).await.unwrap();
        changed.close().await;
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
        assert_eq!(sweeping.await.unwrap(), 2);
        running.say(event("f", "{}")).await.unwrap();
        running.close().await;
        assert_eq!(ids(&events(&store, "running").await), ["e", "f"]);
        assert_eq!(ids(&events(&store, "changed").await), ["e"]);
        assert!(find(&store, "old").await.is_none() && find(&store, "old too").await.is_none());
    })
    .await;
}
