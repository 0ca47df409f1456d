//! A database machine that fails without closing its connections: statements time out, and new connections are
//! opened.

use std::path::Path;
use std::time::Duration;

use annex_database::{Database, PostgresConnections, PostgresDatabase, Value};
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::Scratch;
use crate::places::{ENTRIES, INSERT, TestDatabase, committed, insert};

const READ: &str = "SELECT number FROM entry";

/// A TCP proxy in front of a database. Once silenced, it keeps existing connections open and forwards nothing.
struct Line {
    folder: TempDir,
    silenced: watch::Sender<()>,
}

impl Line {
    fn start(database: PgConnectOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("annex-line-").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (silenced, silence) = watch::channel(());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, database.clone(), silence.clone()));
            }
        });
        Self { folder, silenced }
    }

    fn url(&self, database: &PgConnectOptions) -> String {
        let name = database.get_database().unwrap();
        format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display())
    }
}

async fn relay(mut client: UnixStream, database: PgConnectOptions, mut silence: watch::Receiver<()>) {
    silence.mark_unchanged();
    let relaying = async {
        if let Some(folder) = database.get_socket() {
            let path: &Path = folder.as_ref();
            let mut server = UnixStream::connect(path.join(format!(".s.PGSQL.{}", database.get_port()))).await?;
            copy_bidirectional(&mut client, &mut server).await
        } else {
            let mut server = TcpStream::connect((database.get_host(), database.get_port())).await?;
            copy_bidirectional(&mut client, &mut server).await
        }
    };
    tokio::select! {
        _ = relaying => return,
        _ = silence.changed() => {}
    }
    // Both sockets stay open.
    std::future::pending::<()>().await;
}

async fn silent_database(scratch: &Scratch, connections: u32) -> (Line, PostgresDatabase) {
    let options: PgConnectOptions = scratch.url().parse().unwrap();
    let line = Line::start(options.clone());
    let connections = PostgresConnections::new(&line.url(&options), connections).unwrap();
    (line, PostgresDatabase::open(&connections, ENTRIES).await.unwrap())
}

#[tokio::test]
async fn statements_and_transactions_end_without_an_answer_and_later_ones_are_answered() {
    let Some(scratch) = Scratch::create().await else { return };
    let (line, database) = silent_database(&scratch, 2).await;
    let mut transaction = database.begin().await.unwrap();
    assert_eq!(insert::<PostgresDatabase>(&mut transaction, "open", 1).await, 1);
    assert!(database.read(READ, &[]).await.unwrap().is_empty(), "over the other connection");

    line.silenced.send(()).unwrap();
    // The paused clock advances while everything waits.
    tokio::time::pause();
    let begin = Instant::now();
    let values = [Value::Text("lost"), Value::Int(2)];
    let (changed, asked) =
        tokio::join!(database.change(INSERT, &values), PostgresDatabase::execute(&mut transaction, INSERT, &values),);
    let waited = begin.elapsed();
    tokio::time::resume();
    for error in [changed.map(drop).unwrap_err(), asked.map(drop).unwrap_err()] {
        assert!(annex_database::may_pass(&error), "{error}");
        assert!(error.to_string().contains("has not answered for 30 s"), "{error}");
    }
    assert!(waited < Duration::from_secs(40), "{waited:?}");
    drop(transaction);

    let mut transaction = database.begin().await.unwrap();
    assert_eq!(insert::<PostgresDatabase>(&mut transaction, "later", 3).await, 1);
    PostgresDatabase::commit(transaction).await.unwrap();
    let [(name, 3)] = &committed(&database).await[..] else { panic!("what was not committed is there") };
    assert_eq!(name, "later");
    database.close().await;
    scratch.remove().await;
}

#[tokio::test]
async fn an_abandoned_statement_frees_its_connection_even_without_an_answer() {
    let Some(scratch) = Scratch::create().await else { return };
    let (line, database) = silent_database(&scratch, 2).await;
    let mut transaction = database.begin().await.unwrap();
    assert_eq!(insert::<PostgresDatabase>(&mut transaction, "open", 1).await, 1);
    drop(transaction);
    // Both connections: this also waits until the dropped transaction is rolled back.
    let (first, second) = tokio::join!(database.begin(), database.begin());
    drop((first.unwrap(), second.unwrap()));
    assert!(committed(&database).await.is_empty(), "what was dropped is stored");

    line.silenced.send(()).unwrap();
    tokio::time::pause();
    for _ in 0..2 {
        let read = tokio::time::timeout(Duration::from_millis(100), database.read(READ, &[])).await;
        assert!(read.is_err(), "it is answered");
    }
    // Both statements may still run in the database.
    tokio::time::sleep(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert!(database.read(READ, &[]).await.unwrap().is_empty());
    database.close().await;
    scratch.remove().await;
}

#[tokio::test]
async fn one_ping_timeout_suffices_for_many_dead_idle_connections() {
    let Some(scratch) = Scratch::create().await else { return };
    let (line, database) = silent_database(&scratch, 12).await;
    let held = futures::future::join_all((0..12).map(|_| database.begin())).await;
    for transaction in held {
        PostgresDatabase::commit(transaction.unwrap()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    line.silenced.send(()).unwrap();
    let begin = Instant::now();
    assert!(database.read(READ, &[]).await.unwrap().is_empty());
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    database.close().await;
    scratch.remove().await;
}

#[tokio::test]
async fn the_server_ends_a_transaction_that_a_process_which_stands_still_has_open() {
    let Some(scratch) = Scratch::create().await else { return };
    let database = scratch.entries().await;
    let mut transaction = database.begin().await.unwrap();
    assert_eq!(insert::<PostgresDatabase>(&mut transaction, "locked", 1).await, 1);
    let begin = Instant::now();
    database.change(INSERT, &[Value::Text("locked"), Value::Int(2)]).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let late = PostgresDatabase::execute(&mut transaction, INSERT, &[Value::Text("late"), Value::Int(3)]).await;
    assert!(late.is_err(), "the transaction goes on");
    drop(transaction);
    assert_eq!(committed(&database).await, [("locked".to_owned(), 2)]);
    database.close().await;
    scratch.remove().await;
}
