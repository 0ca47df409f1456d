//! The differences between the databases: connections, transactions and rows.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::future::Future;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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
#[derive(Debug)]
pub struct Rows {
    /// The text before the rows, up to `VALUES`.
    pub head: &'static str,
    /// One row in parentheses. Its parameters are `$1`, `$2` and so on, each of them once and in this order.
    pub row: &'static str,
    /// The number of parameters of a row.
    pub parameters: usize,
    /// The text behind the rows.
    pub tail: &'static str,
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

/// The form in which parameters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Parameters {
    /// `$1`, `$2` and so on.
    Numbered,
    /// `?`, which is what SQLite finds without a search.
    Nameless,
}

/// With so many texts all are forgotten, so that a rare one does not stay for ever.
const MAX_TEXTS: usize = 1_000;

/// The statements of several steps as one text, whose parameters count on from statement to statement.
pub(crate) fn text_of(steps: &[Step<'_>], parameters: Parameters) -> Arc<str> {
    type Texts = HashMap<(Parameters, Vec<(usize, usize)>), Arc<str>>;
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    let shapes: Vec<_> = steps.iter().map(Step::shape).collect();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if texts.len() >= MAX_TEXTS {
        texts.clear();
    }
    Arc::clone(texts.entry((parameters, shapes)).or_insert_with(|| joined(steps, parameters).into()))
}

fn joined(steps: &[Step<'_>], parameters: Parameters) -> String {
    let mut text = String::new();
    let mut count = 0;
    let mut push = |text: &mut String, sql: &str| {
        for (index, piece) in sql.split('$').enumerate() {
            let digits = piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = if index == 0 { ("", piece) } else { piece.split_at(digits) };
            debug_assert!(index == 0 || number == index.to_string(), "parameter {number} is out of order: {sql}");
            match parameters {
                _ if index == 0 => {}
                Parameters::Nameless => text.push('?'),
                Parameters::Numbered => {
                    count += 1;
                    // Writing to a text does not fail.
                    let _ = write!(text, "${count}");
                }
            }
            text.push_str(rest);
        }
    };
    for step in steps {
        match step.sql {
            Sql::Whole(sql) => push(&mut text, sql),
            Sql::Rows(rows) => {
                text.push_str(rows.head);
                for row in 0..step.changes {
                    text.push_str(if row == 0 { " " } else { ", " });
                    push(&mut text, rows.row);
                }
                text.push_str(rows.tail);
            }
        }
        text.push(';');
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_count_on_from_statement_to_statement() {
        static ROWS: Rows = Rows { head: "INSERT INTO a VALUES", row: "($1, $2)", parameters: 2, tail: " RETURNING b" };
        let values = |count| vec![Value::Int(0); count];
        let steps = [
            Step::rows(&ROWS, values(4)),
            Step::new("UPDATE b SET c = $1 WHERE d = $2", values(2)),
            Step::rows(&ROWS, values(2)),
        ];
        let text = "INSERT INTO a VALUES ($1, $2), ($3, $4) RETURNING b;UPDATE b SET c = $5 WHERE d = $6;INSERT INTO a \
                    VALUES ($7, $8) RETURNING b;";
        assert_eq!(&*text_of(&steps, Parameters::Numbered), text);
        let nameless = "INSERT INTO a VALUES (?, ?), (?, ?) RETURNING b;UPDATE b SET c = ? WHERE d = ?;INSERT INTO a VALUES \
                        (?, ?) RETURNING b;";
        assert_eq!(&*text_of(&steps, Parameters::Nameless), nameless);
        assert_eq!(steps.map(|step| step.changes), [2, 1, 1]);
    }
}
