//! Migrations run once, and a place that a later version wrote is refused.

use annex_database::{Database, Migrations, OpenError};

use crate::places::{ENTRIES, Place, TABLE, committed, insert};

/// The next version of the tests' tables. A second run would insert the entry twice, which its key forbids.
const LATER: Migrations = Migrations {
    table: ENTRIES.table,
    files: &[TABLE, (2, "first", "INSERT INTO entry (name, number) VALUES ('first', 1)")],
};

async fn close<D: Database>(database: D) {
    database.close().await;
}

async fn each_migration_runs_once<P: Place>(place: &P) {
    close(place.entries().await).await;
    for _ in 0..2 {
        let database = place.open(LATER).await.unwrap();
        assert_eq!(committed(&database).await, [("first".to_owned(), 1)]);
        close(database).await;
    }
}

async fn what_a_later_version_wrote_is_refused<P: Place>(place: &P) {
    close(place.open(LATER).await.unwrap()).await;
    let refused = place.open(ENTRIES).await.err().unwrap();
    assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
    // The refusal has changed nothing.
    assert_eq!(committed(&place.open(LATER).await.unwrap()).await, [("first".to_owned(), 1)]);
}

async fn a_migration_that_is_not_what_has_run_is_refused<P: Place>(place: &P) {
    const CHANGED: Migrations =
        Migrations { table: ENTRIES.table, files: &[(1, "entry", "CREATE TABLE entry (name TEXT)")] };
    close(place.entries().await).await;
    let refused = place.open(CHANGED).await.err().unwrap();
    assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
}

async fn stores_in_one_place_have_migrations_of_their_own<P: Place>(place: &P) {
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
    what_a_later_version_wrote_is_refused,
    a_migration_that_is_not_what_has_run_is_refused,
    stores_in_one_place_have_migrations_of_their_own,
}
