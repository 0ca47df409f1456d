//! Sessions in a PostgreSQL database.

use annex_database::{Migrations, OpenError, PostgresConnections, PostgresDatabase};

use crate::limits::Limits;
use crate::sql::SqlSessionService;

/// Sessions in a PostgreSQL database, which may be the one that keeps tasks. A row lock and the revision keep the changes
/// of several processes apart.
pub type PostgresSessionService = SqlSessionService<PostgresDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_session_migrations",
    files: &[
        (1, "sessions", include_str!("../migrations/postgres/1_sessions.sql")),
        (2, "retention", include_str!("../migrations/postgres/2_retention.sql")),
    ],
};

impl SqlSessionService<PostgresDatabase> {
    /// Connects with at most `connections` connections of its own and brings the tables up to date; `url` is described at
    /// [`PostgresConnections::new`].
    ///
    /// # Errors
    /// [`OpenError::Database`] when the URL is none, and as [`Self::open`].
    pub async fn connect(url: &str, connections: u32, limits: Limits) -> Result<Self, OpenError> {
        Self::open(&PostgresConnections::new(url, connections)?, limits).await
    }

    /// The same over connections that others may share. Whoever closes the service closes them for all.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the database is not reached, [`OpenError::Migration`] when a later version of the
    /// software wrote the tables. Neither repeats the URL.
    pub async fn open(connections: &PostgresConnections, limits: Limits) -> Result<Self, OpenError> {
        Ok(Self::on(PostgresDatabase::open(connections, MIGRATIONS).await?, limits))
    }
}
