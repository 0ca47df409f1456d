//! SQLite and PostgreSQL for the stores: one trait over both, migrations that are part of the program, and a writer
//! that stores changes together where that is cheaper. The stores decide what is stored, in the SQL that both share.

#![warn(missing_docs)]

mod database;
mod migrations;
mod numbers;
mod outage;
mod patience;
mod postgres;
mod sqlite;
mod text;
mod writer;

pub use database::{Begun, Database, OfFirst, Row, Rows, Sql, Step, Value};
pub use migrations::Migrations;
pub use numbers::{from_sql, to_sql};
pub use outage::{may_pass, outlast, outlast_for};
pub use patience::with_long_statements;
pub use postgres::{PostgresConnections, PostgresDatabase, PostgresState};
pub use sqlite::{SqliteDatabase, SqliteTransaction};
pub use writer::{Change, Writer};

use std::path::PathBuf;

/// The reason why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database file cannot be created, or not written.
    #[error(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The tables cannot be brought to the form that this version of the software uses.
    #[error("the database cannot be migrated")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// It is no database, or it is not reached.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}
