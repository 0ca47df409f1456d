//! Tasks in a PostgreSQL database.

use annex_database::{Migrations, PostgresConnections, PostgresDatabase};

use crate::StoreError;
use crate::sql::SqlTaskStore;

/// Tasks in a PostgreSQL database: a row lock and the number of the last event keep the changes of several processes
/// apart.
pub type PostgresTaskStore = SqlTaskStore<PostgresDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "tasks", include_str!("../migrations/postgres/1_tasks.sql")),
        (2, "answers", include_str!("../migrations/postgres/2_answers.sql")),
        (3, "since", include_str!("../migrations/postgres/3_since.sql")),
        (4, "retention", include_str!("../migrations/postgres/4_retention.sql")),
    ],
};

impl SqlTaskStore<PostgresDatabase> {
    /// Connects with at most `connections` connections of its own and brings the tables up to date; `url` is described at
    /// [`PostgresConnections::new`].
    ///
    /// # Errors
    /// [`StoreError::Database`] when the URL is none, and as [`Self::open`].
    pub async fn connect(url: &str, connections: u32) -> Result<Self, StoreError> {
        Self::open(&PostgresConnections::new(url, connections)?).await
    }

    /// The same over connections that others may share. Whoever closes the store closes them for all.
    ///
    /// # Errors
    /// [`StoreError::Database`] when the database is not reached, [`StoreError::Migration`] when a later version of the
    /// software wrote the tables. Neither repeats the URL.
    pub async fn open(connections: &PostgresConnections) -> Result<Self, StoreError> {
        Ok(Self::on(PostgresDatabase::open(connections, MIGRATIONS).await?))
    }
}
