//! The writer: one transaction for changes that arrive together, and one answer per change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annex_database::{Change, Database, SqliteDatabase, Step, TransactionStart, Value, Writer};
use futures::FutureExt;
use futures::future::join_all;

use crate::places::{ENTRIES_TO_INSERT, Folder, INSERT, TestDatabase, committed, insert};

/// An entry to insert.
struct Entry {
    name: String,
    number: i64,
    /// True if the insertion is a fixed list of statements.
    is_common: bool,
}

/// The way in which an entry was inserted.
#[derive(Debug, PartialEq)]
enum Insertion {
    InTrip,
    StepByStep,
}

#[derive(Debug, thiserror::Error)]
enum InsertError {
    #[error("{0} is taken")]
    Taken(String),
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl Change for Entry {
    type Answer = Insertion;
    type Error = InsertError;

    fn steps(&self) -> Option<(Vec<Step<'_>>, Insertion)> {
        let step = Step::rows(&ENTRIES_TO_INSERT, [Value::Text(&self.name), Value::Int(self.number)]);
        self.is_common.then(|| (vec![step], Insertion::InTrip))
    }

    async fn apply<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Insertion, InsertError> {
        let name = Value::Text(&self.name);
        if !D::query(transaction, "SELECT name FROM entry WHERE name = $1", &[name]).await?.is_empty() {
            return Err(InsertError::Taken(self.name.clone()));
        }
        D::execute(transaction, INSERT, &[name, Value::Int(self.number)]).await?;
        Ok(Insertion::StepByStep)
    }

    fn failure(error: &InsertError) -> Option<&sqlx::Error> {
        match error {
            InsertError::Taken(_) => None,
            InsertError::Database(error) => Some(error),
        }
    }
}

fn entry(name: &str, number: i64) -> Entry {
    Entry { name: name.to_owned(), number, is_common: true }
}

/// Twenty entries: more than fit into one round trip.
fn twenty() -> impl Iterator<Item = Entry> {
    (0..20).map(|number| entry(&format!("e-{number:02}"), number))
}

/// Stores entries from concurrent tasks.
async fn store_all<D: Database>(
    writer: &Writer<D, Entry>,
    entries: impl IntoIterator<Item = Entry>,
) -> Vec<Result<Insertion, InsertError>> {
    join_all(entries.into_iter().map(|entry| writer.store(entry))).await
}

async fn names<D: Database>(database: &D) -> Vec<String> {
    committed(database).await.into_iter().map(|(name, _)| name).collect()
}

async fn concurrent_changes_are_all_stored<P: TestDatabase>(place: &P) {
    let database = Arc::new(place.entries().await);
    let writer = Writer::new(Arc::clone(&database));
    for answer in store_all(&writer, twenty()).await {
        assert_eq!(answer.unwrap(), Insertion::InTrip);
    }
    assert_eq!(names(database.as_ref()).await, twenty().map(|entry| entry.name).collect::<Vec<_>>());
}

async fn only_the_refused_change_gets_an_error<P: TestDatabase>(place: &P) {
    let database = Arc::new(place.entries().await);
    let mut transaction = database.begin().await.unwrap();
    insert::<P::Database>(&mut transaction, "e-07", 70).await;
    P::Database::commit(transaction).await.unwrap();
    let writer = Writer::new(Arc::clone(&database));
    let answers = store_all(&writer, twenty()).await;
    for (entry, answer) in twenty().zip(answers) {
        match answer {
            Err(InsertError::Taken(name)) => assert_eq!((name.as_str(), entry.name.as_str()), ("e-07", "e-07")),
            answer => assert!(answer.is_ok() && entry.name != "e-07", "{}: {answer:?}", entry.name),
        }
    }
    assert_eq!(committed(database.as_ref()).await.get(7), Some(&("e-07".to_owned(), 70)));
    assert_eq!(names(database.as_ref()).await.len(), 20);
}

async fn a_change_that_fails_in_the_database_does_not_prevent_others<P: TestDatabase>(place: &P) {
    let database = Arc::new(place.entries().await);
    let writer = Writer::new(Arc::clone(&database));
    let answers = store_all(&writer, twenty().chain([entry("too-large", 100)])).await;
    let (failed, stored): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_err);
    assert_eq!(stored.len(), 20);
    let [Err(InsertError::Database(error))] = failed.as_slice() else { panic!("{failed:?}") };
    assert!(error.to_string().contains("is_small"), "{error}");
    assert_eq!(names(database.as_ref()).await, twenty().map(|entry| entry.name).collect::<Vec<_>>());
}

async fn an_uncommon_change_is_applied_step_by_step_among_others<P: TestDatabase>(place: &P) {
    let database = Arc::new(place.entries().await);
    let writer = Writer::new(Arc::clone(&database));
    let rare = Entry { is_common: false, ..entry("rare", 1) };
    let answers = store_all(&writer, [entry("a", 1), rare, entry("b", 1)]).await;
    let answers: Vec<Insertion> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Insertion::InTrip, Insertion::StepByStep, Insertion::InTrip]);
    assert_eq!(names(database.as_ref()).await, ["a", "b", "rare"]);
}

async fn every_caller_gets_an_error_after_the_database_is_closed<P: TestDatabase>(place: &P) {
    let database = Arc::new(place.entries().await);
    let writer = Writer::new(Arc::clone(&database));
    database.close().await;
    for answer in store_all(&writer, twenty()).await {
        assert!(matches!(answer, Err(InsertError::Database(_))), "{answer:?}");
    }
}

on_both! {
    concurrent_changes_are_all_stored,
    only_the_refused_change_gets_an_error,
    a_change_that_fails_in_the_database_does_not_prevent_others,
    an_uncommon_change_is_applied_step_by_step_among_others,
    every_caller_gets_an_error_after_the_database_is_closed,
}

/// Counts the transactions of an SQLite database.
#[derive(Debug)]
struct CountingDatabase {
    file: SqliteDatabase,
    begun: AtomicUsize,
}

#[tokio::test]
async fn concurrent_changes_are_one_transaction_if_there_is_one_writer() {
    let folder = Folder::create();
    let database = Arc::new(CountingDatabase { file: folder.entries().await, begun: AtomicUsize::new(0) });
    let writer = Writer::new(Arc::clone(&database));
    assert!(store_all(&writer, twenty()).await.iter().all(Result::is_ok));
    assert_eq!((names(database.as_ref()).await.len(), database.begun.load(Ordering::Relaxed)), (20, 1));
}

#[tokio::test]
async fn a_cancelled_caller_does_not_cancel_the_changes_of_others() {
    let folder = Folder::create();
    let database = Arc::new(folder.entries().await);
    let writer = Writer::new(Arc::clone(&database));
    assert!(writer.store(entry("gone", 1)).now_or_never().is_none());
    assert_eq!(writer.store(entry("stayed", 1)).await.unwrap(), Insertion::InTrip);
    assert_eq!(names(database.as_ref()).await, ["gone", "stayed"]);
}

#[tokio::test]
async fn debug_output_has_the_number_of_waiting_changes_and_no_content() {
    let folder = Folder::create();
    let writer = Writer::new(Arc::new(folder.entries().await));
    assert!(writer.store(entry("a secret", 1)).now_or_never().is_none());
    let shown = format!("{writer:?}");
    assert!(shown.contains("waiting: 1") && !shown.contains("secret"), "{shown}");
}

type Transaction = <SqliteDatabase as Database>::Transaction;
type SqliteRow = <SqliteDatabase as Database>::Row;

impl Database for CountingDatabase {
    type Row = SqliteRow;
    type Transaction = Transaction;
    const LOCK_SWEEP: Option<&'static str> = SqliteDatabase::LOCK_SWEEP;
    const HAS_ONE_WRITER: bool = SqliteDatabase::HAS_ONE_WRITER;
    const SYSTEM: &'static str = SqliteDatabase::SYSTEM;

    async fn close(&self) {
        self.file.close().await;
    }

    async fn begin(&self) -> sqlx::Result<Transaction> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.file.begin().await
    }

    async fn commit(transaction: Transaction) -> sqlx::Result<()> {
        SqliteDatabase::commit(transaction).await
    }

    async fn execute(transaction: &mut Transaction, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<u64> {
        SqliteDatabase::execute(transaction, sql, values).await
    }

    async fn execute_all(transaction: &mut Transaction, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        SqliteDatabase::execute_all(transaction, steps).await
    }

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<TransactionStart<SqliteDatabase>> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.file.begin_with(steps).await
    }

    async fn execute_alone(&self, steps: &[Step<'_>]) -> sqlx::Result<bool> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.file.execute_alone(steps).await
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        self.file.change(sql, values).await
    }

    async fn query(
        transaction: &mut Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<SqliteRow>> {
        SqliteDatabase::query(transaction, sql, values).await
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        self.file.read(sql, values).await
    }
}
