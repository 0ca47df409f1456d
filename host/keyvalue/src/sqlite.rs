//! Keys of extensions in one SQLite file, so that they outlive the process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_database::{Migrations, SqliteDatabase};
use sqlx::migrate::MigrateError;

use crate::sql::{KeyDatabase, SqlKeyValueStore, statements};

/// Each sets `PRAGMA user_version`, where the version was before there was a table of migrations.
const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "keys", include_str!("../migrations/sqlite/1_keys.sql")),
        (2, "scopes", include_str!("../migrations/sqlite/2_scopes.sql")),
    ],
};
/// The number of the last migration.
const VERSION: i64 = MIGRATIONS.latest();

/// The reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueOpenError {
    /// It cannot be created, or not written.
    #[error(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// It is no database, or the database does not work.
    #[error("the database file {} cannot be opened", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// A later version of the software wrote it.
    #[error("the database file {} has version {found}, and this software knows none after {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
}

/// Keys in one SQLite file, as [`SqliteDatabase`] keeps it: what was set survives any end of the process, and a power cut
/// can take the latest changes with it.
pub type SqliteKeyValueStore = SqlKeyValueStore<SqliteDatabase>;

impl KeyDatabase for SqliteDatabase {
    const LOCK: Option<&'static str> = None;
    const HAS_BOUNDED_NAMES: bool = false;
    const PUT: &'static str = statements::PUT;
    const SELECT_SCOPES: &'static str = statements::SELECT_SCOPES;
}

impl SqlKeyValueStore<SqliteDatabase> {
    /// Opens the file; creates it if needed, readable for its owner only.
    ///
    /// # Errors
    /// When the file cannot be created or written, is no database, or was written by a later version of the software.
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
            // The error of the database itself says more than that it came with a migration.
            annex_database::OpenError::Migration(MigrateError::Execute(source)) => Self::Database { path, source },
            annex_database::OpenError::Migration(error) => Self::Database { path, source: error.into() },
        }
    }
}
