//! Databases only: sessions outlive the process, several processes share them, and databases fail.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use annex_session::{Limits, SessionError, SqliteSessionService};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::cluster::Scratch;
use crate::support::{Backend, Store, add, create, event, events, find, ids, key, open, state_of};

on_every_database!(
    everything_outlives_the_service,
    two_processes_on_one_session_do_not_interleave,
    limits_that_were_lowered_hold_from_the_next_event_on,
);

async fn everything_outlives_the_service(backend: Backend) {
    let first = backend.service().await;
    create(&first, "ann/s", r#"{"a":1,"user:b":2,"app:c":3}"#).await;
    add(&first, "ann/s", 1, event("e", r#"{"a":9007199254740993}"#)).await.unwrap();
    drop(first);
    let second = backend.service().await;
    assert_eq!(state_of(&second, "ann/s").await, r#"{"a":9007199254740993,"app:c":3,"user:b":2}"#);
    assert_eq!(ids(&events(&second, "ann/s").await), ["e"]);
    assert_eq!(find(&second, "ann/s").await.unwrap().revision, 2);
}

async fn two_processes_on_one_session_do_not_interleave(backend: Backend) {
    let first = backend.service().await;
    let second = backend.service().await;
    let write = async |service: &Store, name: &str| {
        let mut expected = 0;
        let mut stale = 0;
        for round in 0..30 {
            let sent = event(&format!("{name}-{round}"), &format!(r#"{{"{name}":{round},"user:{name}":{round}}}"#));
            loop {
                match add(service, "s", expected, sent.clone()).await {
                    Ok(appended) => break expected = appended.revision,
                    Err(SessionError::Stale { found, .. }) => (expected, stale) = (found, stale + 1),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        stale
    };
    let (one, other) = tokio::join!(write(&first, "one"), write(&second, "other"));
    assert!(one + other > 0, "they never met");
    assert_eq!(events(&second, "s").await.len(), 60);
    assert_eq!(find(&first, "s").await.unwrap().revision, 60);
    let state = find(&first, "s").await.unwrap().state.merged();
    for key in ["one", "other", "user:one", "user:other"] {
        assert_eq!(state.get(key).unwrap().get(), "29");
    }
}

async fn limits_that_were_lowered_hold_from_the_next_event_on(backend: Backend) {
    let service = backend.service().await;
    for number in 0..10 {
        add(&service, "s", number, event(&number.to_string(), "{}")).await.unwrap();
    }
    let service = backend.within(Limits { events: 3, ..Limits::default() }).await;
    assert_eq!(events(&service, "s").await.len(), 10);
    add(&service, "s", 10, event("10", "{}")).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["8", "9", "10"]);
}

const FULL_DISK: &str = "ANNEX_SESSIONS_FULL_DISK";

/// The process whose disk is full: this test program with only this test and a file to write to. Otherwise it does
/// nothing. It says when it cannot store, waits for a line, and says when it can again.
#[tokio::test]
async fn writer() {
    let Some(file) = std::env::var_os(FULL_DISK) else { return };
    let service: Store =
        std::sync::Arc::new(SqliteSessionService::open(Path::new(&file), Limits::default()).await.unwrap());
    let value = format!(r#"{{"a":"{}"}}"#, "x".repeat(50_000));
    let mut revision = 0;
    let refused = loop {
        match add(&service, "s", revision, event(&revision.to_string(), &value)).await {
            Ok(appended) => revision = appended.revision,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, SessionError::Database(_)), "{refused}");
    let session = find(&service, "s").await.unwrap();
    assert_eq!(session.revision, revision, "nothing is half-written");
    assert_eq!(events(&service, "s").await.len() as u64, revision);
    println!("\nfull {revision}");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    add(&service, "s", revision, event(&revision.to_string(), &value)).await.unwrap();
    println!("\nstored {}", revision + 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_an_error_and_stores_again_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let test = std::env::current_exe().unwrap();
    // No file may grow beyond 2 MiB, and that is an error instead of a signal.
    let script = "trap '' XFSZ; ulimit -S -f 4096; exec \"$0\" databases::writer --exact --nocapture --test-threads=1";
    let mut writer = Command::new("sh")
        .args(["-c", script])
        .arg(test)
        .env(FULL_DISK, &file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
    let full = lines.by_ref().find_map(|line| line.strip_prefix("full ").map(str::to_owned)).expect("it is full");
    let pid = writer.id().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status().unwrap();
    assert!(lifted.success());
    writeln!(writer.stdin.take().unwrap()).unwrap();
    let stored = lines.by_ref().find_map(|line| line.strip_prefix("stored ").map(str::to_owned)).expect("it is stored");
    assert!(writer.wait().unwrap().success());
    let full: u64 = full.parse().unwrap();
    let stored: u64 = stored.parse().unwrap();
    assert!(full > 5 && stored == full + 1, "{full} {stored}");
    let service: Store = std::sync::Arc::new(SqliteSessionService::open(&file, Limits::default()).await.unwrap());
    assert_eq!(events(&service, "s").await.len() as u64, stored);
}

#[tokio::test]
async fn what_cannot_be_stored_does_not_keep_from_it_what_came_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let service = Backend::Sqlite(file.clone()).service().await;
    let url = format!("sqlite://{}", file.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let trigger =
        "CREATE TRIGGER broken BEFORE INSERT ON session_event WHEN NEW.id = '7' BEGIN SELECT RAISE(ABORT, '-'); END";
    sqlx::query(trigger).execute(&mut connection).await.unwrap();
    let write = |number: usize| {
        let service = service.clone();
        // One of the others is refused for a reason of its own.
        let expected = u64::from(number == 3);
        async move { add(&service, &format!("s{number}"), expected, event(&number.to_string(), r#"{"user:a":1}"#)).await }
    };
    let writes: Vec<_> = (0..20).map(|number| tokio::spawn(write(number))).collect();
    for (number, write) in writes.into_iter().enumerate() {
        let stored = write.await.unwrap();
        let expected = number != 7 && number != 3;
        assert_eq!(stored.is_ok(), expected, "{number}: {stored:?}");
        assert_eq!(service.exists(&key(&format!("s{number}"))).await.unwrap(), expected, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_gone_is_used_again_when_it_is_back() {
    let Some(scratch) = Scratch::create().await else { return };
    let backend = Backend::Postgres(scratch.url().to_owned());
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(event("one", r#"{"a":1}"#)).await.unwrap();

    let (server, rest) = scratch.url().rsplit_once("/annex_test").unwrap();
    let (name, parameters) = rest.split_once('?').unwrap();
    let mut admin = PgConnection::connect(&format!("{server}/postgres?{parameters}")).await.unwrap();
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'annex_test{name}'");
    for (allowed, id) in [(false, "two"), (true, "three")] {
        let allow = format!("ALTER DATABASE annex_test{name} ALLOW_CONNECTIONS {allowed}");
        sqlx::query(AssertSqlSafe(allow)).execute(&mut admin).await.unwrap();
        sqlx::query(AssertSqlSafe(end.clone())).execute(&mut admin).await.unwrap();
        let stored = session.append(event(id, r#"{"a":2}"#)).await;
        assert_eq!(stored.is_ok(), allowed, "{stored:?}");
        assert!(allowed || matches!(stored, Err(SessionError::Database(_))));
    }
    assert_eq!(ids(&events(&service, "s").await), ["one", "three"]);
    admin.close().await.unwrap();
    scratch.remove().await;
}

#[tokio::test]
async fn tasks_and_sessions_share_a_database() {
    let Some(scratch) = Scratch::create().await else { return };
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    // As the migrations of the tasks leave it.
    let others = "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL,
        installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), success BOOLEAN NOT NULL, checksum BYTEA NOT NULL,
        execution_time BIGINT NOT NULL);
        INSERT INTO _sqlx_migrations VALUES (1, 'tasks', now(), TRUE, 'x', 0), (2, 'answers', now(), TRUE, 'x', 0)";
    sqlx::raw_sql(others).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let service = Backend::Postgres(scratch.url().to_owned()).service().await;
    add(&service, "s", 0, event("e", "{}")).await.unwrap();
    drop(service);
    scratch.remove().await;
}
