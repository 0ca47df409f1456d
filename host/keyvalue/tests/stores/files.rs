//! Keys in SQLite files, including files of earlier and later versions.

use std::path::Path;

use annex_keyvalue::{KeyValueError, KeyValueOpenError, KeyValueStore, Quota, SqliteKeyValueStore};
use rusqlite::Connection;

use crate::{ROOMY, own, own_in, task};

#[tokio::test]
async fn keys_survive_reopening_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    store.set(&own(), "a", b"1".to_vec(), &ROOMY).await.expect("room");
    drop(store);
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
}

/// Schema of the first version.
const FIRST_VERSION: &str = "
    CREATE TABLE entry (
        tenant TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (tenant, extension, key)
    ) WITHOUT ROWID;
    INSERT INTO entry VALUES ('', 'https://annex.example/own/v1', 'a', x'31');
    PRAGMA user_version = 1;
";

/// Schema of the second version, before the crate had a table of migrations.
const SECOND_VERSION: &str = "
    CREATE TABLE entry (
        kind TEXT NOT NULL,
        tenant TEXT NOT NULL,
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (kind, tenant, principal, id, extension, key)
    ) WITHOUT ROWID;
    CREATE TABLE scoped_usage (
        tenant TEXT NOT NULL,
        extension TEXT NOT NULL,
        keys INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (tenant, extension)
    ) WITHOUT ROWID;
    PRAGMA user_version = 2;
    INSERT INTO entry VALUES ('', '', '', '', 'https://annex.example/own/v1', 'a', x'31');
    INSERT INTO entry VALUES ('task', '', 'ada', 't', 'https://annex.example/own/v1', 'b', x'3233');
    INSERT INTO scoped_usage VALUES ('', 'https://annex.example/own/v1', 1, 3);
";

/// Runs SQL on a file and creates the file if needed.
fn run(path: &Path, sql: &str) {
    Connection::open(path).expect("a file").execute_batch(sql).expect("valid SQL");
}

fn user_version(path: &Path) -> i64 {
    let connection = Connection::open(path).expect("a file");
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a number")
}

#[tokio::test]
async fn keys_of_an_older_file_are_migrated() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    run(&path, FIRST_VERSION);
    for _ in 0..2 {
        let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
        assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
        assert_eq!(store.keys(&own(), 0).await.expect("a store"), ["a"]);
        store.set(&own_in(task("", "t")), "a", b"2".to_vec(), &ROOMY).await.expect("room");
    }
}

#[tokio::test]
async fn a_file_from_before_the_table_of_migrations_keeps_its_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    run(&path, SECOND_VERSION);
    let quota = Quota { max_scoped_bytes: 3, ..ROOMY };
    for _ in 0..2 {
        let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
        assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
        assert_eq!(store.keys(&own_in(task("ada", "t")), 0).await.expect("a store"), ["b"]);
        assert_eq!(store.get(&own_in(task("ada", "t")), "b").await.expect("a store"), Some(b"23".to_vec()));
        assert_eq!(store.scopes(None).await.expect("a page"), [task("ada", "t")]);
        let full = store.set(&own_in(task("ada", "u")), "c", Vec::new(), &quota).await;
        assert!(matches!(full, Err(KeyValueError::ScopedFull { limit: 3 })), "what is there still counts: {full:?}");
    }
}

#[tokio::test]
async fn older_software_finds_its_version_in_user_version() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, sql) in [("new", ""), ("first", FIRST_VERSION), ("second", SECOND_VERSION)] {
        let path = folder.path().join(name);
        run(&path, sql);
        drop(SqliteKeyValueStore::open(&path).await.expect("the file opens"));
        assert_eq!(user_version(&path), 2, "{name}");
    }
}

#[tokio::test]
async fn a_file_opened_concurrently_is_created_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let open = || SqliteKeyValueStore::open(&path);
    let (first, second, third) = tokio::join!(open(), open(), open());
    for store in [first, second, third] {
        store.expect("the file opens").increment(&own(), "n", 1, &ROOMY).await.expect("a counter");
    }
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    assert_eq!(store.get(&own(), "n").await.expect("a store"), Some(b"3".to_vec()));
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    run(&path, "PRAGMA user_version = 3");
    let error = SqliteKeyValueStore::open(&path).await.expect_err("a later version");
    assert!(matches!(error, KeyValueOpenError::Version { found: 3, .. }), "{error:?}");
    let text = format!("the database file {} has version 3; this software supports versions up to 2", path.display());
    assert_eq!(error.to_string(), text);
    assert_eq!(user_version(&path), 3, "the file stays as it is");
}

#[tokio::test]
async fn a_file_of_something_else_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    std::fs::write(&path, "no database, but long enough to be looked at, at least so it seems").expect("a file");
    let error = SqliteKeyValueStore::open(&path).await.expect_err("no database");
    assert!(matches!(error, KeyValueOpenError::Database { .. }), "{error:?}");
    let error = SqliteKeyValueStore::open(&folder.path().join("missing/keyvalue.sqlite")).await.expect_err("no folder");
    assert!(matches!(error, KeyValueOpenError::File { .. }), "{error:?}");
}

#[tokio::test]
async fn a_store_that_was_closed_leaves_one_file_with_all_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    store.set(&own(), "n", b"1".to_vec(), &ROOMY).await.expect("a store");
    store.close().await;
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file").path()).collect();
    assert_eq!(files, std::slice::from_ref(&path));
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    assert_eq!(store.get(&own(), "n").await.expect("a store"), Some(b"1".to_vec()));
}
