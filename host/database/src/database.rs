//! The trait of all databases, with their connections, transactions and rows.

use std::fmt;
use std::future::Future;
use std::ptr;

/// A database that stores can use. Implemented by this crate only, for SQLite and PostgreSQL.
pub trait Database: fmt::Debug + Send + Sync + 'static {
    /// A row of a result.
    type Row: Row;

    /// A write transaction. Dropping it rolls it back.
    type Transaction: Send;

    /// SQL that takes a lock until the transaction ends, so that sweepers of several processes wait for each other.
    /// `None` if a write transaction already excludes other writers (SQLite).
    const LOCK_SWEEP: Option<&'static str>;

    /// True if the database has one writer at a time (SQLite). For such a database it is cheapest to store several changes in
    /// one transaction.
    const HAS_ONE_WRITER: bool;

    /// The name of the database system in traces, as OpenTelemetry spells it.
    const SYSTEM: &'static str;

    /// Waits for running statements and closes the connections. SQLite empties its write-ahead log into the file.
    /// Later calls fail.
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// Begins a write transaction.
    fn begin(&self) -> impl Future<Output = sqlx::Result<Self::Transaction>> + Send;

    /// Commits a transaction.
    fn commit(transaction: Self::Transaction) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Executes one statement. Returns the number of changed rows.
    fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Executes independent statements in order, in one round trip if the database can do that. Returns the number of
    /// changed rows of each statement. If a statement changes another number of rows than its [`Step::changes`], the
    /// result may end with the number of that statement.
    fn execute_all(
        transaction: &mut Self::Transaction,
        steps: &[Step<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<u64>>> + Send;

    /// Begins a transaction and executes statements in it, in one round trip where possible. The outer result is an
    /// error if the transaction did not begin. The inner result is that of [`execute_all`](Self::execute_all).
    fn begin_with(&self, steps: &[Step<'_>]) -> impl Future<Output = sqlx::Result<TransactionStart<Self>>> + Send;

    /// Executes statements as a transaction of their own, in one round trip. Returns false and changes nothing if the
    /// statements do not fit into one round trip, or if a [`Sql::Whole`] does not change exactly one row.
    fn execute_alone(&self, steps: &[Step<'_>]) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Executes a statement such as `UPDATE … RETURNING` as a transaction of its own. Returns the rows that the
    /// statement returns. On SQLite, the text may be a whole transaction, from `BEGIN IMMEDIATE;` to `COMMIT`, whose
    /// statements contain no semicolon. The result of such a text contains the rows that all of its statements return.
    fn change(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

    /// Executes a query in a transaction. Returns its rows.
    fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

    /// Executes a query outside of any transaction. It sees committed rows only.
    fn read(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;
}

/// An open transaction and the result of its first statements, see [`Database::begin_with`].
pub type TransactionStart<D> = (<D as Database>::Transaction, sqlx::Result<Vec<u64>>);

/// A row of a result. Columns count from 0.
pub trait Row: Send + Sync {
    /// A text column that is not NULL.
    fn text(&self, column: usize) -> sqlx::Result<String>;
    /// An integer column that is not NULL.
    fn int(&self, column: usize) -> sqlx::Result<i64>;
    /// An integer column; `None` for NULL.
    fn maybe_int(&self, column: usize) -> sqlx::Result<Option<i64>>;
    /// A byte column that is not NULL.
    fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>>;
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A text that is not NULL.
    Text(&'a str),
    /// A text or NULL.
    MaybeText(Option<&'a str>),
    /// A number.
    Int(i64),
    /// A number or NULL.
    MaybeInt(Option<i64>),
    /// Bytes that are not NULL.
    Bytes(&'a [u8]),
}

/// One of several statements, with its values.
#[derive(Debug)]
pub struct Step<'a> {
    /// SQL of the statement.
    pub sql: Sql,
    /// Parameter values, in order.
    pub values: Vec<Value<'a>>,
    /// Number of rows that the statement must change.
    pub changes: u64,
}

/// The SQL of a [`Step`].
#[derive(Clone, Copy, Debug)]
pub enum Sql {
    /// A fixed statement. Its parameters are `$1`, `$2` and so on, each used once and in this order.
    Whole(&'static str),
    /// An `INSERT` of one or more rows, depending on the number of values.
    Rows(&'static Rows),
}

/// An `INSERT` with any number of rows. The rows of several steps are merged into one statement.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// SQL before the rows, up to `VALUES`.
    pub head: &'static str,
    /// One row in parentheses. Its parameters are `$1`, `$2` and so on, each used once and in this order.
    pub row: &'static str,
    /// Number of parameters per row.
    pub parameters: usize,
    /// SQL after the rows, such as `ON CONFLICT (id) DO UPDATE SET …`. It must not skip rows.
    pub tail: &'static str,
    /// Describes how the rows refer to the row of the first step. `None` if they do not refer to that row.
    pub of_first: Option<OfFirst>,
}

/// Describes rows whose first column is the `id` of the row that the first step inserts or updates. All of these
/// steps then fit into one statement.
#[derive(Clone, Copy, Debug)]
pub struct OfFirst {
    /// Number of leading parameters that identify the row of the first step. If each step is a statement of its own, these
    /// parameters find the `id` of that row.
    pub key: usize,
    /// One row without its first column, in parentheses. It takes the parameters of a row except the first `key` ones,
    /// numbered from `$1`.
    pub row: &'static str,
}

impl<'a> Step<'a> {
    /// A statement that must change exactly one row.
    pub fn new(sql: &'static str, values: impl Into<Vec<Value<'a>>>) -> Self {
        Self { sql: Sql::Whole(sql), values: values.into(), changes: 1 }
    }

    /// A step that inserts rows. All of the rows must be inserted.
    pub fn rows(rows: &'static Rows, values: impl Into<Vec<Value<'a>>>) -> Self {
        let values = values.into();
        debug_assert_eq!(values.len() % rows.parameters, 0, "a row lacks values: {}", rows.head);
        let changes = (values.len() / rows.parameters) as u64;
        Self { sql: Sql::Rows(rows), values, changes }
    }

    /// Statement and number of rows of the step. Steps with equal shapes have the same SQL text.
    pub(crate) fn shape(&self) -> (usize, usize) {
        match self.sql {
            Sql::Whole(sql) => (sql.as_ptr().addr(), sql.len()),
            Sql::Rows(rows) => (ptr::from_ref(rows).addr(), self.values.len()),
        }
    }
}
