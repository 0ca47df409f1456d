//! Keys of extensions in an SQLite file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_database::{Migrations, SqliteDatabase};
use sqlx::migrate::MigrateError;

use crate::sql::{KeyDatabase, SqlKeyValueStore, statements};

/// The migrations of the file. Each one sets `PRAGMA user_version`, because earlier versions kept the version of a file
/// there and had no table of migrations.
const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "keys", include_str!("../migrations/sqlite/1_keys.sql")),
        (2, "scopes", include_str!("../migrations/sqlite/2_scopes.sql")),
    ],
};
/// Number of the last migration.
const VERSION: i64 = MIGRATIONS.latest();

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueOpenError {
    /// The file cannot be created or written.
    #[error(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        path.display()
    )]
    File {
        /// The database file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a database, or the database failed.
    #[error("the database file {} cannot be opened", path.display())]
    Database {
        /// The database file.
        path: PathBuf,
        /// The error of the database.
        #[source]
        source: sqlx::Error,
    },
    /// A later version of the software wrote the file.
    #[error("the database file {} has version {found}; this software supports versions up to {VERSION}", path.display())]
    Version {
        /// The database file.
        path: PathBuf,
        /// Version found in the file.
        found: i64,
    },
}

/// Keys in an SQLite file. The documentation of [`SqliteDatabase`] describes what survives a crash.
pub type SqliteKeyValueStore = SqlKeyValueStore<SqliteDatabase>;

impl KeyDatabase for SqliteDatabase {
    const LOCK: Option<&'static str> = None;
    const HAS_BOUNDED_NAMES: bool = false;
    const PUT: &'static str = statements::PUT;
    const SELECT_SCOPES: &'static str = statements::SELECT_SCOPES;
}

impl SqlKeyValueStore<SqliteDatabase> {
    /// Opens or creates the file, readable for its owner only.
    ///
    /// # Errors
    /// The file cannot be created or written, is not a database, or was written by a later version of the software.
    pub async fn open(path: &Path) -> Result<Self, KeyValueOpenError> {
        let opened = SqliteDatabase::open_with_user_version(path, MIGRATIONS).await;
        Ok(Self::on(opened.map_err(|error| KeyValueOpenError::of(path, error))?, Duration::ZERO))
    }
}

impl KeyValueOpenError {
    fn of(path: &Path, error: annex_database::OpenError) -> Self {
        let path = path.to_owned();
        match error {
            annex_database::OpenError::File { path, source } => Self::File { path, source },
            annex_database::OpenError::Database(source) => Self::Database { path, source },
            annex_database::OpenError::Migration(MigrateError::VersionMissing(found)) => Self::Version { path, found },
            // The database error is more precise than the fact that a migration failed.
            annex_database::OpenError::Migration(MigrateError::Execute(source)) => Self::Database { path, source },
            annex_database::OpenError::Migration(error) => Self::Database { path, source: error.into() },
        }
    }
}
