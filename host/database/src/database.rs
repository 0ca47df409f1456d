//! The differences between the databases: connections, transactions and rows.

use std::fmt;
use std::future::Future;
use std::ptr;

use sqlx::query::Query;
use sqlx::{Encode, SqlSafeStr, Type};

/// A database that a store can be on. Implemented by this crate only.
pub trait Database: fmt::Debug + Send + Sync + 'static {
    /// A row of a result.
    type Row: Row;

    /// A transaction that may write. It is rolled back when it is dropped.
    type Transaction: Send;

    /// The statement that keeps other sweepers away until the end of a transaction; `None` where the transaction alone
    /// does.
    const LOCK_SWEEP: Option<&'static str>;

    /// True if there is one writer at a time, so that changes of several tasks are cheapest in one transaction.
    const HAS_ONE_WRITER: bool;

    /// Waits for what is under way and closes the connections; a log in front of a file is emptied into it. Later calls fail.
    fn close(&self) -> impl Future<Output = ()> + Send;

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

    /// Begins a transaction and executes statements in it, in one trip where that can be had. An error is that of a
    /// transaction that did not begin; what became of the statements is what [`execute_all`](Self::execute_all) returns.
    fn begin_with(&self, steps: &[Step<'_>]) -> impl Future<Output = sqlx::Result<Begun<Self>>> + Send;

    /// Executes statements as a transaction of their own in one trip to the database. Returns false, and has changed
    /// nothing, when the first one does not change as many rows as it is to, and where one trip cannot do all of it.
    fn execute_alone(&self, steps: &[Step<'_>]) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Returns the rows of a statement that changes some, as a transaction of its own.
    fn change(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

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

/// A transaction that has begun with statements, and what became of them.
pub type Begun<D> = (<D as Database>::Transaction, sqlx::Result<Vec<u64>>);

/// A row of a result; columns count from 0.
pub trait Row: Send + Sync {
    /// A text that is not NULL.
    fn text(&self, column: usize) -> sqlx::Result<String>;
    /// A number that is not NULL.
    fn int(&self, column: usize) -> sqlx::Result<i64>;
    /// A number, or `None` for NULL.
    fn maybe_int(&self, column: usize) -> sqlx::Result<Option<i64>>;
    /// Bytes that are not NULL.
    fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>>;
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A text or NULL.
    MaybeText(Option<&'a str>),
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
    /// The statement.
    pub sql: Sql,
    /// The values of its parameters.
    pub values: Vec<Value<'a>>,
    /// The number of rows that it is to change.
    pub changes: u64,
}

/// The text that a step executes.
#[derive(Clone, Copy, Debug)]
pub enum Sql {
    /// A statement as it is. Its parameters are `$1`, `$2` and so on, each of them once and in this order.
    Whole(&'static str),
    /// One that inserts rows, as many as there are values for.
    Rows(&'static Rows),
}

/// A statement that inserts rows. Those of several steps go in one.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The text before the rows, up to `VALUES`.
    pub head: &'static str,
    /// One row in parentheses. Its parameters are `$1`, `$2` and so on, each of them once and in this order.
    pub row: &'static str,
    /// The number of parameters of a row.
    pub parameters: usize,
    /// The text behind the rows.
    pub tail: &'static str,
    /// For rows that refer to the row of a first step.
    pub of_first: Option<OfFirst>,
}

/// Rows whose first column is the `id` of the row that the first of several steps inserts or updates. All of these steps
/// can go in one statement.
#[derive(Clone, Copy, Debug)]
pub struct OfFirst {
    /// The number of parameters, the first ones of a row, that find the `id` where each step is a statement.
    pub key: usize,
    /// One row without its first column, in parentheses. Its parameters are those behind the key and count from `$1` on.
    pub row: &'static str,
}

impl<'a> Step<'a> {
    /// A statement that is to change one row.
    pub fn new(sql: &'static str, values: impl Into<Vec<Value<'a>>>) -> Self {
        Self { sql: Sql::Whole(sql), values: values.into(), changes: 1 }
    }

    /// Rows that are to be inserted, each of them.
    pub fn rows(rows: &'static Rows, values: impl Into<Vec<Value<'a>>>) -> Self {
        let values = values.into();
        debug_assert_eq!(values.len() % rows.parameters, 0, "a row lacks values: {}", rows.head);
        let changes = (values.len() / rows.parameters) as u64;
        Self { sql: Sql::Rows(rows), values, changes }
    }

    /// The part of the step that its text depends on: which statement it is, and for how many rows.
    pub(crate) fn shape(&self) -> (usize, usize) {
        match self.sql {
            Sql::Whole(sql) => (sql.as_ptr().addr(), sql.len()),
            Sql::Rows(rows) => (ptr::from_ref(rows).addr(), self.values.len()),
        }
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
    for<'v> Option<&'v str>: Encode<'v, DB> + Type<DB>,
    for<'v> &'v [u8]: Encode<'v, DB> + Type<DB>,
    for<'v> Option<i64>: Encode<'v, DB> + Type<DB>,
    for<'v> i64: Encode<'v, DB> + Type<DB>,
{
    values.into_iter().fold(sqlx::query::<DB>(sql), |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::MaybeText(text) => query.bind(text),
        Value::Int(number) => query.bind(number),
        Value::MaybeInt(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}
