//! Cases for SQLite only: the file and its write-ahead log.

use std::time::Duration;

use annex_database::{Database, OpenError, Row, SqliteDatabase, Step, Value};
use futures::FutureExt;
use rusqlite::Connection;

use crate::places::{ENTRIES, Folder, INSERT, TABLE, TestDatabase, committed, insert};

#[tokio::test]
async fn closing_empties_the_log_into_the_file() {
    let folder = Folder::create();
    let database = folder.entries().await;
    let mut transaction = database.begin().await.unwrap();
    insert::<SqliteDatabase>(&mut transaction, "a", 1).await;
    SqliteDatabase::commit(transaction).await.unwrap();
    // Opens a reader too. It must not keep the log alive either.
    assert_eq!(committed(&database).await.len(), 1);
    assert!(folder.files().contains(&"entries.sqlite-wal".to_owned()), "{:?}", folder.files());
    database.close().await;
    assert_eq!(folder.files(), ["entries.sqlite"]);
    assert_eq!(committed(&folder.entries().await).await, [("a".to_owned(), 1)]);
}

#[tokio::test]
async fn a_transaction_that_was_dropped_does_not_keep_the_file_from_being_closed() {
    let folder = Folder::create();
    let database = folder.entries().await;
    let mut transaction = database.begin().await.unwrap();
    insert::<SqliteDatabase>(&mut transaction, "a", 1).await;
    drop(transaction);
    database.close().await;
    assert_eq!(folder.files(), ["entries.sqlite"]);
    assert_eq!(committed(&folder.entries().await).await, []);
}

#[tokio::test]
async fn a_caller_that_is_dropped_while_it_begins_leaves_no_transaction() {
    let folder = Folder::create();
    let database = folder.entries().await;
    // The thread of the connection may answer before the caller is dropped.
    drop(database.begin().now_or_never());
    let step = Step::new(INSERT, [Value::Text("a"), Value::Int(1)]);
    drop(database.begin_with(&[step]).now_or_never());
    Connection::open(folder.file()).unwrap().execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
    assert_eq!(committed(&database).await, []);
}

#[tokio::test]
async fn a_read_whose_caller_has_gone_is_interrupted() {
    // Counts for hours.
    const ENDLESS: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let folder = Folder::create();
    let database = folder.entries().await;
    assert_eq!(committed(&database).await, []);
    let read = tokio::time::timeout(Duration::from_millis(100), database.read(ENDLESS, &[])).await;
    assert!(read.is_err());
    let next = tokio::time::timeout(Duration::from_secs(60), committed(&database)).await;
    assert_eq!(next.expect("the connection is free"), []);
}

#[tokio::test]
async fn a_file_whose_migrations_sqlx_has_listed_is_opened() {
    let folder = Folder::create();
    let connection = Connection::open(folder.file()).unwrap();
    connection.execute_batch(TABLE.2).unwrap();
    connection.execute_batch(LISTED_BY_SQLX).unwrap();
    connection.execute_batch("INSERT INTO entry (name, number) VALUES ('a', 1)").unwrap();
    drop(connection);
    assert_eq!(committed(&folder.entries().await).await, [("a".to_owned(), 1)]);
}

/// The table of migrations as sqlx makes it, with the migration of [`ENTRIES`].
const LISTED_BY_SQLX: &str = "
    CREATE TABLE entry_migrations (
        version BIGINT PRIMARY KEY,
        description TEXT NOT NULL,
        installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        success BOOLEAN NOT NULL,
        checksum BLOB NOT NULL,
        execution_time BIGINT NOT NULL
    );
    INSERT INTO entry_migrations (version, description, success, checksum, execution_time)
    VALUES (1, 'entry', TRUE, x'b5cc9a8fc8af35c91e8af204f482fa36999aa9b0ad14cec8dd4ee9d1810e02778f65407c8b9991c6f953078853c45ddb', 250000)";

#[tokio::test]
async fn a_statement_that_lacks_a_value_is_refused() {
    let folder = Folder::create();
    let database = folder.entries().await;
    assert!(database.read("SELECT $1, $2", &[Value::Int(1)]).await.is_err());
    assert_eq!(database.read("SELECT $1, $2", &[Value::Int(1), Value::Int(2)]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_new_file_that_another_process_has_locked_is_opened_once_it_is_free() {
    let folder = Folder::create();
    // The mode of a new file, from which SQLite switches without waiting for the lock.
    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let freed = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        other.execute_batch("COMMIT").unwrap();
    };
    let (database, ()) = tokio::join!(folder.entries(), freed);
    assert_eq!(committed(&database).await, []);
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_and_unchanged() {
    let folder = Folder::create();
    let text = "This is a letter to a friend, and not a database.";
    std::fs::write(folder.file(), text).unwrap();
    let refused = folder.open(ENTRIES).await.err().unwrap();
    assert!(matches!(refused, OpenError::Database(_)), "{refused}");
    assert_eq!(std::fs::read_to_string(folder.file()).unwrap(), text);
}

#[tokio::test]
async fn a_text_that_is_a_whole_transaction_returns_the_rows_of_its_statements() {
    let folder = Folder::create();
    let database = folder.entries().await;
    let both = "BEGIN IMMEDIATE;
        INSERT INTO entry (name, number) VALUES ($1, $2) RETURNING name;
        UPDATE entry SET number = number + 1 WHERE name = $1;
        SELECT name FROM entry WHERE number > $2; COMMIT";
    let rows = database.change(both, &[Value::Text("a"), Value::Int(1)]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.text(0).unwrap()).collect::<Vec<_>>(), ["a", "a"]);
    database.change(both, &[Value::Text("a"), Value::Int(1)]).await.err().unwrap();
    database.change(both, &[Value::Text("b"), Value::Int(99)]).await.err().unwrap();
    database.change(both, &[Value::Text("c"), Value::Int(5)]).await.unwrap();
    assert_eq!(committed(&database).await, [("a".to_owned(), 2), ("c".to_owned(), 6)]);
}

#[tokio::test]
async fn reading_cannot_change_the_file() {
    let folder = Folder::create();
    let database = folder.entries().await;
    let refused = database.read("INSERT INTO entry (name, number) VALUES ('a', 1) RETURNING name", &[]).await;
    assert!(refused.err().unwrap().to_string().contains("readonly"));
    assert_eq!(committed(&database).await, []);
}
