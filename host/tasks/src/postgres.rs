//! Tasks in a PostgreSQL database.

use annex_database::{Migrations, PostgresConnections, PostgresDatabase};
use annex_leases::Lease;

use crate::sql::SqlTaskStore;
use crate::{StoreError, distance};

/// Tasks in a PostgreSQL database. A row lock and the number of the last event keep the changes of several processes
/// apart. Leases show which processes are alive.
pub type PostgresTaskStore = SqlTaskStore<PostgresDatabase>;

/// The migrations of the tables of tasks.
pub const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "tasks", include_str!("../migrations/postgres/1_tasks.sql")),
        (2, "answers", include_str!("../migrations/postgres/2_answers.sql")),
        (3, "since", include_str!("../migrations/postgres/3_since.sql")),
        (4, "retention", include_str!("../migrations/postgres/4_retention.sql")),
        (5, "replicas", include_str!("../migrations/postgres/5_replicas.sql")),
        (6, "turns", include_str!("../migrations/postgres/6_turns.sql")),
        (7, "lost turns", include_str!("../migrations/postgres/7_lost_turns.sql")),
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

    /// Opens the store on shared connections. Closing the store closes the connections for every user.
    ///
    /// # Errors
    /// [`StoreError::Database`] when the database is not reached, or is so far away that a lease could not be renewed
    /// in time, [`StoreError::Migration`] when a version of the software later than the next one wrote the tables.
    /// Neither repeats the URL.
    pub async fn open(connections: &PostgresConnections) -> Result<Self, StoreError> {
        Self::open_as(None, connections).await
    }

    /// Like [`open`](Self::open), as the replica `name`. The lease of an earlier process with this name ends at once,
    /// so that the tasks of that process do not wait.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_as(name: Option<&str>, connections: &PostgresConnections) -> Result<Self, StoreError> {
        distance::check(connections).await?;
        let database = PostgresDatabase::open(connections, MIGRATIONS).await?;
        let lease = Lease::open(connections, name).await?;
        Ok(Self::on(database).among_others(lease))
    }
}
