//! SQLite and PostgreSQL for the stores. This crate provides:
//!
//! - the trait [`Database`], which both databases implement;
//! - migrations that are embedded in the program;
//! - the [`Writer`], which groups changes into transactions.
//!
//! The stores define tables and write SQL that both databases understand.

#![warn(missing_docs)]

mod database;
mod migrations;
mod numbers;
mod postgres;
mod retry;
mod sqlite;
mod statement_timeout;
mod text;
mod writer;

pub use database::{Database, OfFirst, Row, Rows, Sql, Step, TransactionStart, Value};
pub use migrations::Migrations;
pub use numbers::{from_sql, to_sql};
pub use postgres::{PostgresConnections, PostgresDatabase, PostgresState};
pub use retry::{may_pass, outlast, outlast_for};
pub use sqlite::{SqliteDatabase, SqliteRow, SqliteTransaction};
pub use statement_timeout::{STATEMENT_TIMEOUT, with_long_statements};
pub use writer::{Change, Writer};

use std::path::PathBuf;

/// The reason why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database file cannot be created or written.
    #[error(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        path.display()
    )]
    File {
        /// The database file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The tables cannot be migrated to the schema of this version.
    #[error("the database cannot be migrated")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database cannot be reached, or the file is not a database.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}
