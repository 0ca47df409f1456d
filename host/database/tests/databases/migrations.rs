//! Migrations run once. A database that a later version has written is refused.

use std::error::Error;

use annex_database::{Database, Migrations, OpenError, PostgresDatabase};

use crate::cluster::Scratch;
use crate::places::{ENTRIES, Folder, TABLE, TestDatabase, committed, insert};

/// The next version of the tests' table. Running it twice would insert the row twice and fail on the primary key.
const LATER: Migrations = Migrations {
    table: ENTRIES.table,
    files: &[TABLE, (2, "first", "INSERT INTO entry (name, number) VALUES ('first', 1)")],
};

/// The version after `LATER`.
const LATEST: Migrations = Migrations {
    table: ENTRIES.table,
    files: &[TABLE, LATER.files[1], (3, "second", "INSERT INTO entry (name, number) VALUES ('second', 2)")],
};

async fn close<D: Database>(database: D) {
    database.close().await;
}

async fn each_migration_runs_once<P: TestDatabase>(place: &P) {
    close(place.entries().await).await;
    for _ in 0..2 {
        let database = place.open(LATER).await.unwrap();
        assert_eq!(committed(&database).await, [("first".to_owned(), 1)]);
        close(database).await;
    }
}

async fn a_database_of_a_much_later_version_is_refused<P: TestDatabase>(place: &P) {
    let written = [("first".to_owned(), 1), ("second".to_owned(), 2)];
    close(place.open(LATEST).await.unwrap()).await;
    let refused = place.open(ENTRIES).await.err().unwrap();
    assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
    // The refusal has changed nothing.
    assert_eq!(committed(&place.open(LATEST).await.unwrap()).await, written);
}

#[tokio::test]
async fn a_file_that_a_later_version_wrote_is_refused() {
    let folder = Folder::create();
    close(folder.open(LATER).await.unwrap()).await;
    let refused = folder.open(ENTRIES).await.err().unwrap();
    assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
}

#[tokio::test]
async fn a_process_starts_on_the_tables_of_the_next_version_and_on_no_later_ones() {
    let Some(scratch) = Scratch::create().await else { return };
    close(scratch.open(LATER).await.unwrap()).await;
    let earlier = scratch.open(ENTRIES).await.unwrap();
    let mut transaction = earlier.begin().await.unwrap();
    insert::<PostgresDatabase>(&mut transaction, "zero", 0).await;
    PostgresDatabase::commit(transaction).await.unwrap();
    close(earlier).await;
    let both = [("first".to_owned(), 1), ("zero".to_owned(), 0)];
    assert_eq!(committed(&scratch.open(LATER).await.unwrap()).await, both);

    close(scratch.open(LATEST).await.unwrap()).await;
    let refused = scratch.open(ENTRIES).await.err().unwrap();
    let reason = refused.source().unwrap().to_string();
    assert!(reason.contains("entry_migrations is at migration 3") && reason.contains("has 1"), "{reason}");
    assert!(reason.contains("start a later version"), "{reason}");
    scratch.remove().await;
}

async fn a_migration_that_differs_from_the_one_that_ran_is_refused<P: TestDatabase>(place: &P) {
    const CHANGED: Migrations =
        Migrations { table: ENTRIES.table, files: &[(1, "entry", "CREATE TABLE entry (name TEXT)")] };
    close(place.entries().await).await;
    let refused = place.open(CHANGED).await.err().unwrap();
    assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
    let reason = refused.source().unwrap().to_string();
    assert!(reason.contains("entry_migrations has another migration 1"), "{reason}");
    assert!(reason.contains("name an empty database"), "{reason}");
}

async fn stores_in_one_database_have_separate_migrations<P: TestDatabase>(place: &P) {
    const OTHERS: Migrations =
        Migrations { table: "other_migrations", files: &[(1, "other", "CREATE TABLE other (name TEXT)")] };
    let entries = place.entries().await;
    let others = place.open(OTHERS).await.unwrap();
    let mut transaction = entries.begin().await.unwrap();
    insert::<P::Database>(&mut transaction, "a", 1).await;
    P::Database::commit(transaction).await.unwrap();
    assert_eq!(committed(&others).await, [("a".to_owned(), 1)]);
    assert!(others.read("SELECT name FROM other", &[]).await.unwrap().is_empty());
}

on_both! {
    each_migration_runs_once,
    a_database_of_a_much_later_version_is_refused,
    a_migration_that_differs_from_the_one_that_ran_is_refused,
    stores_in_one_database_have_separate_migrations,
}
