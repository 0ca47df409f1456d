//! What differs between the databases: connections, transactions and rows.

use std::fmt;
use std::future::Future;

use sqlx::query::Query;
use sqlx::{Encode, SqlSafeStr, Type};

/// A database that a store can be on. Implemented by this crate only.
pub trait Database: fmt::Debug + Send + Sync + 'static {
    /// A row of a result.
    type Row: Row;

    /// A transaction that may write. It is rolled back when it is dropped.
    type Transaction: Send;

    /// What keeps other sweepers away until the end of a transaction, if the transaction alone does not.
    const LOCK_SWEEP: Option<&'static str>;

    /// Whether there is one writer at a time, so that changes of several tasks are cheapest in one transaction.
    const HAS_ONE_WRITER: bool;

    /// Begins a transaction that may write.
    fn begin(&self) -> impl Future<Output = sqlx::Result<Self::Transaction>> + Send;

    /// Ends a transaction.
    fn commit(transaction: Self::Transaction) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns how many rows were changed.
    fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Executes statements that do not depend on each other's results, in their order, in one trip to the database where
    /// that can be had. Returns how many rows each has changed, at least up to one that has not changed as many as it was
    /// to.
    fn execute_all(
        transaction: &mut Self::Transaction,
        steps: &[Step<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<u64>>> + Send;

    /// Returns the rows of a statement in a transaction.
    fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

    /// Reads what is committed, outside of any transaction.
    fn read(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;
}

/// A row of a result; columns count from 0.
pub trait Row: Send + Sync {
    /// A text that is not NULL.
    fn text(&self, column: usize) -> sqlx::Result<String>;
    /// A number that is not NULL.
    fn int(&self, column: usize) -> sqlx::Result<i64>;
    /// Bytes that are not NULL.
    fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>>;
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A number.
    Int(i64),
    /// A number or NULL.
    MaybeInt(Option<i64>),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// One statement of several.
#[derive(Debug)]
pub struct Step<'a> {
    /// The statement. Its parameters are `$1`, `$2` and so on.
    pub sql: &'static str,
    /// The values of its parameters.
    pub values: Vec<Value<'a>>,
    /// How many rows it is to change.
    pub changes: u64,
}

impl<'a> Step<'a> {
    /// A statement that is to change one row.
    pub fn new(sql: &'static str, values: impl Into<Vec<Value<'a>>>) -> Self {
        Self { sql, values: values.into(), changes: 1 }
    }
}

/// A statement with its parameters.
pub(crate) fn bind<'s, DB>(
    sql: impl SqlSafeStr,
    values: impl IntoIterator<Item = &'s Value<'s>>,
) -> Query<'static, DB, DB::Arguments>
where
    DB: sqlx::Database,
    for<'v> &'v str: Encode<'v, DB> + Type<DB>,
    for<'v> &'v [u8]: Encode<'v, DB> + Type<DB>,
    for<'v> Option<i64>: Encode<'v, DB> + Type<DB>,
    for<'v> i64: Encode<'v, DB> + Type<DB>,
{
    values.into_iter().fold(sqlx::query::<DB>(sql), |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::Int(number) => query.bind(number),
        Value::MaybeInt(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}
