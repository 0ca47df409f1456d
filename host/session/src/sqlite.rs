//! Sessions in one SQLite file.

use std::path::Path;

use annex_database::{Migrations, OpenError, SqliteDatabase};

use crate::limits::Limits;
use crate::sql::SqlSessionService;

/// Sessions in one SQLite file. [`SqliteDatabase`] says which crashes a session survives.
pub type SqliteSessionService = SqlSessionService<SqliteDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "sessions", include_str!("../migrations/sqlite/1_sessions.sql")),
        (2, "retention", include_str!("../migrations/sqlite/2_retention.sql")),
    ],
};

impl SqlSessionService<SqliteDatabase> {
    /// Opens the file, creates it if needed, readable for its owner only, and brings its tables up to date.
    ///
    /// # Errors
    /// [`OpenError::File`] when the file cannot be created or written, [`OpenError::Database`] when it is not a database,
    /// [`OpenError::Migration`] when a later version of the software wrote it.
    pub async fn open(path: &Path, limits: Limits) -> Result<Self, OpenError> {
        Ok(Self::on(SqliteDatabase::open(path, MIGRATIONS).await?, limits))
    }
}
