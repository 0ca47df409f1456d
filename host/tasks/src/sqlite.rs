//! Tasks in one SQLite file.

use std::path::Path;

use annex_database::{Migrations, SqliteDatabase};

use crate::StoreError;
use crate::sql::SqlTaskStore;

/// Tasks in one SQLite file. [`SqliteDatabase`] says which crashes a task survives.
pub type SqliteTaskStore = SqlTaskStore<SqliteDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "tasks", include_str!("../migrations/sqlite/1_tasks.sql")),
        (2, "answers", include_str!("../migrations/sqlite/2_answers.sql")),
        (3, "since", include_str!("../migrations/sqlite/3_since.sql")),
        (4, "retention", include_str!("../migrations/sqlite/4_retention.sql")),
        (5, "replicas", include_str!("../migrations/sqlite/5_replicas.sql")),
        (6, "turns", include_str!("../migrations/sqlite/6_turns.sql")),
        (7, "lost turns", include_str!("../migrations/sqlite/7_lost_turns.sql")),
    ],
};

impl SqlTaskStore<SqliteDatabase> {
    /// Opens the file, creates it if needed, readable for its owner only, and brings its tables up to date.
    ///
    /// # Errors
    /// [`StoreError::File`] when the file cannot be created or written, [`StoreError::Database`] when it is not a
    /// database, [`StoreError::Migration`] when a later version of the software wrote it.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::on(SqliteDatabase::open(path, MIGRATIONS).await?))
    }
}
