//! Transactions: isolation, rollback, and the results of several statements.

use annex_database::{Database, Row, Step, Value};

use crate::places::{ENTRIES_TO_INSERT, FREE, INSERT, TestDatabase, committed, insert};

const UPDATE: &str = "UPDATE entry SET number = $1 WHERE name = $2";

async fn a_transaction_that_is_dropped_is_rolled_back<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut dropped = database.begin().await.unwrap();
    assert_eq!(insert::<P::Database>(&mut dropped, "a", 1).await, 1);
    drop(dropped);
    // The next transaction sees the state before the dropped one.
    let mut next = database.begin().await.unwrap();
    assert!(P::Database::query(&mut next, "SELECT name FROM entry", &[]).await.unwrap().is_empty());
    assert_eq!(insert::<P::Database>(&mut next, "a", 2).await, 1);
    P::Database::commit(next).await.unwrap();
    assert_eq!(committed(&database).await, [("a".to_owned(), 2)]);
}

async fn a_transaction_whose_statement_failed_leaves_nothing<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut failed = database.begin().await.unwrap();
    insert::<P::Database>(&mut failed, "a", 1).await;
    let again = Step::new(INSERT, [Value::Text("a"), Value::Int(2)]);
    assert!(P::Database::execute_all(&mut failed, &[again]).await.is_err());
    drop(failed);
    assert_eq!(committed(&database).await, []);
}

async fn others_see_a_change_once_it_is_committed<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut transaction = database.begin().await.unwrap();
    insert::<P::Database>(&mut transaction, "a", 1).await;
    let own = P::Database::query(&mut transaction, "SELECT number FROM entry", &[]).await.unwrap();
    assert_eq!(own.iter().map(|row| row.int(0).unwrap()).collect::<Vec<_>>(), [1]);
    assert_eq!(committed(&database).await, []);
    P::Database::commit(transaction).await.unwrap();
    assert_eq!(committed(&database).await, [("a".to_owned(), 1)]);
}

async fn several_statements_return_their_numbers_of_changed_rows<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut transaction = database.begin().await.unwrap();
    let entry = |name, number| [Value::Text(name), Value::Int(number)];
    let steps = [
        Step::rows(&FREE, [entry("a", 1), entry("b", 2), entry("c", 3)].concat()),
        Step::new(UPDATE, [Value::Int(4), Value::Text("b")]),
        Step::rows(&FREE, [entry("c", 5), entry("d", 5)].concat()),
    ];
    // The name `c` is taken by then.
    assert_eq!(P::Database::execute_all(&mut transaction, &steps).await.unwrap(), [3, 1, 1]);
    P::Database::commit(transaction).await.unwrap();
    let numbers: Vec<i64> = committed(&database).await.into_iter().map(|(_, number)| number).collect();
    assert_eq!(numbers, [1, 4, 3, 5]);
}

async fn a_statement_that_changes_no_row_is_distinguished<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut transaction = database.begin().await.unwrap();
    let update = |name| Step::new(UPDATE, [Value::Int(4), Value::Text(name)]);
    insert::<P::Database>(&mut transaction, "a", 1).await;
    let changed = P::Database::execute_all(&mut transaction, &[update("a"), update("b"), update("a")]).await.unwrap();
    // A database may stop after the statement whose count is wrong.
    assert_eq!(changed.get(..2), Some([1, 0].as_slice()));
}

async fn a_transaction_of_one_round_trip_is_stored_whole_or_not_at_all<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut transaction = database.begin().await.unwrap();
    insert::<P::Database>(&mut transaction, "a", 1).await;
    P::Database::commit(transaction).await.unwrap();
    let update = |number, name| Step::new(UPDATE, [Value::Int(number), Value::Text(name)]);
    assert!(database.execute_alone(&[update(2, "a")]).await.unwrap());
    assert_eq!(committed(&database).await, [("a".to_owned(), 2)]);
    let inserted = Step::rows(&ENTRIES_TO_INSERT, [Value::Text("b"), Value::Int(3)]);
    for refused in [vec![update(4, "missing")], vec![update(4, "a"), inserted, update(4, "missing")]] {
        assert!(!database.execute_alone(&refused).await.unwrap());
        assert_eq!(committed(&database).await, [("a".to_owned(), 2)]);
    }
    assert!(database.execute_alone(&[update(5, "a")]).await.unwrap(), "the connection can be used afterwards");
    assert_eq!(committed(&database).await, [("a".to_owned(), 5)]);
}

async fn values_come_back_as_they_were_given<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    let mut transaction = database.begin().await.unwrap();
    let sql = "CREATE TABLE value (text TEXT, number BIGINT, missing BIGINT)";
    P::Database::execute(&mut transaction, sql, &[]).await.unwrap();
    let values = [Value::Text("Ünïcode 'quoted' $1"), Value::MaybeInt(Some(i64::MAX)), Value::MaybeInt(None)];
    let sql = "INSERT INTO value (text, number, missing) VALUES ($1, $2, $3)";
    assert_eq!(P::Database::execute(&mut transaction, sql, &values).await.unwrap(), 1);
    let rows = P::Database::query(&mut transaction, "SELECT text, number FROM value WHERE missing IS NULL", &[])
        .await
        .unwrap();
    let row = rows.first().unwrap();
    assert_eq!((row.text(0).unwrap().as_str(), row.int(1).unwrap()), ("Ünïcode 'quoted' $1", i64::MAX));
}

async fn a_closed_database_refuses_everything<P: TestDatabase>(place: &P) {
    let database = place.entries().await;
    database.close().await;
    assert!(matches!(database.begin().await.err(), Some(sqlx::Error::PoolClosed)));
    assert!(matches!(database.read("SELECT 1", &[]).await.err(), Some(sqlx::Error::PoolClosed)));
}

on_both! {
    a_transaction_that_is_dropped_is_rolled_back,
    a_transaction_whose_statement_failed_leaves_nothing,
    others_see_a_change_once_it_is_committed,
    several_statements_return_their_numbers_of_changed_rows,
    a_statement_that_changes_no_row_is_distinguished,
    a_transaction_of_one_round_trip_is_stored_whole_or_not_at_all,
    values_come_back_as_they_were_given,
    a_closed_database_refuses_everything,
}
