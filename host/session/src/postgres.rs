//! Sessions in a PostgreSQL database.

use std::sync::Arc;

use annex_database::{Migrations, OpenError, PostgresConnections, PostgresDatabase};
use annex_leases::Replica;

use crate::limits::Limits;
use crate::sql::SqlSessionService;

/// Sessions in a PostgreSQL database, which may be the database of tasks too. A row lock and the revision keep the
/// changes of several processes apart.
pub type PostgresSessionService = SqlSessionService<PostgresDatabase>;

/// The migrations of the tables of sessions.
pub const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_session_migrations",
    files: &[
        (1, "sessions", include_str!("../migrations/postgres/1_sessions.sql")),
        (2, "retention", include_str!("../migrations/postgres/2_retention.sql")),
        (3, "turns", include_str!("../migrations/postgres/3_turns.sql")),
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

    /// Opens the service on shared connections. Closing the service closes the connections for every user.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the database is not reached, [`OpenError::Migration`] when a later version of the
    /// software wrote the tables. Neither repeats the URL.
    pub async fn open(connections: &PostgresConnections, limits: Limits) -> Result<Self, OpenError> {
        Ok(Self::on(PostgresDatabase::open(connections, MIGRATIONS).await?, limits))
    }

    /// Makes the service safe for several processes on one database. The turns of a session run in the order of their
    /// arrival at any process. The events of a turn are stored only while the replica of the turn has its lease.
    /// `replica` returns the current replica of this process; the leases are in the same database.
    #[must_use]
    pub fn among_others(self, replica: impl Fn() -> Replica + Send + Sync + 'static) -> Self {
        self.in_queues_as(Arc::new(replica))
    }
}
