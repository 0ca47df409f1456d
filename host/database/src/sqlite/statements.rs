//! Statements with owned values, and the prepared statements of one connection.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, PrepFlags, Statement, types};

use crate::database::{Row, Step, Value};
use crate::text::text_of;

/// The maximum length of all cached texts together, in bytes. The prepared statements of a text take about fifty times as much
/// memory as the text. One kind of change needs several texts: one for a single change, one for two changes together, and so on.
/// A full cache is cleared, so that rare texts do not stay for ever.
const MAX_TEXTS: usize = 256 * 1024;
/// Statements that take as long as this are logged. sqlx has the same limit for PostgreSQL.
const SLOW: Duration = Duration::from_secs(1);

/// One or more statements with the values of their parameters.
pub(super) struct Batch {
    text: Text,
    values: Vec<types::Value>,
}

enum Text {
    Fixed(&'static str),
    Built(Arc<str>),
}

/// What statements have changed and returned.
#[derive(Default)]
pub(super) struct Outcome {
    /// The number of changed rows of each statement.
    pub(super) changes: Vec<u64>,
    /// The rows of all statements.
    pub(super) rows: Vec<SqliteRow>,
}

/// A row of a result of SQLite.
pub struct SqliteRow(Vec<types::Value>);

/// The prepared statements of a connection.
pub(super) struct Statements<'c> {
    connection: &'c Connection,
    /// The statements of each text.
    texts: HashMap<Box<str>, Vec<Prepared<'c>>>,
    /// The length of all texts together, in bytes.
    length: usize,
}

struct Prepared<'c> {
    statement: Statement<'c>,
    /// For each parameter, the index of its value among the values of the batch.
    places: Vec<usize>,
}

impl Batch {
    /// A fixed text. The parameter `$1` has the first value in all statements of the text.
    pub(super) fn fixed(sql: &'static str, values: &[Value<'_>]) -> Self {
        Self { text: Text::Fixed(sql), values: values.iter().map(owned).collect() }
    }

    /// The statements of all steps.
    pub(super) fn of_steps(steps: &[Step<'_>]) -> Self {
        let values = steps.iter().flat_map(|step| &step.values).map(owned).collect();
        Self { text: Text::Built(text_of(steps)), values }
    }
}

fn owned(value: &Value<'_>) -> types::Value {
    match *value {
        Value::Text(text) | Value::MaybeText(Some(text)) => types::Value::Text(text.to_owned()),
        Value::Int(number) | Value::MaybeInt(Some(number)) => types::Value::Integer(number),
        Value::Bytes(bytes) => types::Value::Blob(bytes.to_owned()),
        Value::MaybeText(None) | Value::MaybeInt(None) => types::Value::Null,
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Fixed(text) => text,
            Self::Built(text) => text,
        }
    }
}

impl<'c> Statements<'c> {
    pub(super) fn of(connection: &'c Connection) -> Self {
        Self { connection, texts: HashMap::new(), length: 0 }
    }

    /// Executes the statements in order. Ends with the first error.
    pub(super) fn execute(&mut self, batch: &Batch) -> rusqlite::Result<Outcome> {
        let begin = Instant::now();
        let outcome = self.execute_cached(batch);
        let elapsed = begin.elapsed();
        if elapsed >= SLOW {
            tracing::warn!(sql = &*batch.text, ?elapsed, "SQLite took more than a second for these statements");
        }
        outcome
    }

    fn execute_cached(&mut self, batch: &Batch) -> rusqlite::Result<Outcome> {
        if let Some(statements) = self.texts.get_mut(&*batch.text) {
            return execute(self.connection, statements, &batch.values);
        }
        let mut statements = prepare(self.connection, &batch.text)?;
        let outcome = execute(self.connection, &mut statements, &batch.values);
        self.length += batch.text.len();
        if self.length > MAX_TEXTS {
            self.texts.clear();
            self.length = batch.text.len();
        }
        self.texts.insert(Box::from(&*batch.text), statements);
        outcome
    }

    pub(super) fn execute_fixed(&mut self, sql: &'static str) -> rusqlite::Result<Outcome> {
        self.execute(&Batch::fixed(sql, &[]))
    }
}

/// Prepares all statements of a text. The stores write no semicolon within a statement.
fn prepare<'c>(connection: &'c Connection, text: &str) -> rusqlite::Result<Vec<Prepared<'c>>> {
    let statements = text.split(';').map(str::trim).filter(|sql| !sql.is_empty());
    let flags = PrepFlags::SQLITE_PREPARE_PERSISTENT;
    statements.map(|sql| Prepared::new(connection.prepare_with_flags(sql, flags)?)).collect()
}

fn execute(
    connection: &Connection,
    statements: &mut [Prepared<'_>],
    values: &[types::Value],
) -> rusqlite::Result<Outcome> {
    let mut outcome = Outcome::default();
    for prepared in statements {
        prepared.bind(values)?;
        let stepped = prepared.step(&mut outcome.rows);
        // A cached statement keeps no large value.
        prepared.statement.clear_bindings();
        stepped?;
        outcome.changes.push(connection.changes());
    }
    Ok(outcome)
}

impl<'c> Prepared<'c> {
    fn new(statement: Statement<'c>) -> rusqlite::Result<Self> {
        let place = |index| {
            let name = statement.parameter_name(index).unwrap_or("?");
            let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
            let place = number.and_then(|number| number.checked_sub(1));
            place.ok_or_else(|| rusqlite::Error::InvalidParameterName(name.to_owned()))
        };
        let places = (1..=statement.parameter_count()).map(place).collect::<rusqlite::Result<_>>()?;
        Ok(Self { statement, places })
    }

    fn bind(&mut self, values: &[types::Value]) -> rusqlite::Result<()> {
        for (index, &place) in self.places.iter().enumerate() {
            let missing = || rusqlite::Error::InvalidParameterCount(values.len(), place + 1);
            self.statement.raw_bind_parameter(index + 1, values.get(place).ok_or_else(missing)?)?;
        }
        Ok(())
    }

    /// Executes the statement to its end and adds the rows that it returns.
    fn step(&mut self, found: &mut Vec<SqliteRow>) -> rusqlite::Result<()> {
        let columns = self.statement.column_count();
        let mut rows = self.statement.raw_query();
        while let Some(row) = rows.next()? {
            found.push(SqliteRow((0..columns).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?));
        }
        Ok(())
    }
}

impl SqliteRow {
    fn value(&self, column: usize) -> sqlx::Result<&types::Value> {
        self.0.get(column).ok_or(sqlx::Error::ColumnIndexOutOfBounds { index: column, len: self.0.len() })
    }
}

/// The error for a column with a value of another type than expected.
fn unexpected<T>(column: usize, found: &types::Value, expected: &str) -> sqlx::Result<T> {
    let source = format!("expected {expected} and found {}", found.data_type()).into();
    Err(sqlx::Error::ColumnDecode { index: column.to_string(), source })
}

impl Row for SqliteRow {
    fn text(&self, column: usize) -> sqlx::Result<String> {
        match self.value(column)? {
            types::Value::Text(text) => Ok(text.clone()),
            other => unexpected(column, other, "text"),
        }
    }

    fn int(&self, column: usize) -> sqlx::Result<i64> {
        match self.value(column)? {
            types::Value::Integer(number) => Ok(*number),
            other => unexpected(column, other, "an integer"),
        }
    }

    fn maybe_int(&self, column: usize) -> sqlx::Result<Option<i64>> {
        match self.value(column)? {
            types::Value::Null => Ok(None),
            _ => self.int(column).map(Some),
        }
    }

    fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>> {
        match self.value(column)? {
            types::Value::Blob(bytes) => Ok(bytes.clone()),
            types::Value::Text(text) => Ok(text.clone().into_bytes()),
            other => unexpected(column, other, "bytes"),
        }
    }
}
