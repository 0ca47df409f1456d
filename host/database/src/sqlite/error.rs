//! The errors of SQLite as errors of sqlx, so that both databases have one error type.

use std::borrow::Cow;
use std::error::Error;

use sqlx::error::{DatabaseError, ErrorKind};

/// Another connection holds the lock.
pub(super) const BUSY: i32 = 5;
/// The file was read-only when the connection was opened.
pub(super) const READONLY: i32 = 8;
/// The operating system could not read or write the file.
const IOERR: i32 = 10;
/// The file is damaged.
const CORRUPT: i32 = 11;
/// The file cannot be opened.
pub(super) const CANTOPEN: i32 = 14;
/// The file is not a database.
const NOTADB: i32 = 26;

/// An error that SQLite returned.
#[derive(Debug, thiserror::Error)]
#[error("(code: {code}) {message}")]
struct SqliteError {
    /// The extended result code.
    code: i32,
    message: String,
}

impl DatabaseError for SqliteError {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.to_string().into())
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

/// Converts an error of rusqlite. The new error has no SQL text and no values.
pub(super) fn failed(error: rusqlite::Error) -> sqlx::Error {
    let (code, message) = match error {
        rusqlite::Error::SqliteFailure(error, message) => {
            (error.extended_code, message.unwrap_or_else(|| error.to_string()))
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => (error.extended_code, msg),
        other => return sqlx::Error::Protocol(other.to_string()),
    };
    SqliteError { code, message }.into()
}

/// SQLite's primary result code: the low byte of the extended code.
pub(super) fn code_of(error: &sqlx::Error) -> Option<i32> {
    let error = error.as_database_error()?.try_downcast_ref::<SqliteError>()?;
    Some(error.code & 0xff)
}

/// True for the code of an error that an open connection may return for ever, although a new connection would not.
pub(super) fn lasts(code: i32) -> bool {
    matches!(code, READONLY | IOERR | CORRUPT | NOTADB)
}
