//! What differs between the databases: connections, transactions and rows.

use std::fmt;
use std::future::Future;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::query::Query;
use sqlx::{Encode, SqlSafeStr, Type};

/// A database that [`SqlTaskStore`](crate::SqlTaskStore) can be on. Implemented by this crate only.
pub trait Database: fmt::Debug + Send + Sync + 'static {
    /// A row of a result.
    #[doc(hidden)]
    type Row: Row;

    /// A transaction that may write. It is rolled back when it is dropped.
    #[doc(hidden)]
    type Transaction: Send;

    /// What keeps other sweepers away until the end of a transaction, if the transaction alone does not.
    #[doc(hidden)]
    const LOCK_SWEEP: Option<&'static str>;

    /// Whether there is one writer at a time, so that changes of several tasks are cheapest in one transaction.
    #[doc(hidden)]
    const HAS_ONE_WRITER: bool;

    #[doc(hidden)]
    fn begin(&self) -> impl Future<Output = sqlx::Result<Self::Transaction>> + Send;

    #[doc(hidden)]
    fn commit(transaction: Self::Transaction) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns how many rows were changed.
    #[doc(hidden)]
    fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    #[doc(hidden)]
    fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

    /// Reads what is committed, outside of any transaction.
    #[doc(hidden)]
    fn read(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;
}

/// A row of a result; columns count from 0.
pub trait Row: Send + Sync {
    fn text(&self, column: usize) -> sqlx::Result<String>;
    fn int(&self, column: usize) -> sqlx::Result<i64>;
    fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>>;
}

/// A parameter of a statement.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Text(&'a str),
    Int(i64),
    MaybeInt(Option<i64>),
    Bytes(&'a [u8]),
}

/// A statement with its parameters.
pub(crate) fn bind<DB>(sql: &'static str, values: &[Value<'_>]) -> Query<'static, DB, DB::Arguments>
where
    DB: sqlx::Database,
    for<'v> &'v str: Encode<'v, DB> + Type<DB>,
    for<'v> &'v [u8]: Encode<'v, DB> + Type<DB>,
    for<'v> Option<i64>: Encode<'v, DB> + Type<DB>,
    for<'v> i64: Encode<'v, DB> + Type<DB>,
{
    values.iter().fold(sqlx::query::<DB>(sql), |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::Int(number) => query.bind(number),
        Value::MaybeInt(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

/// Migrations that are part of the program: each with the number and the name of its file. One that was released never
/// changes.
pub(crate) fn embedded(migrations: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migrations = migrations.iter().map(|&(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}
