//! Conversations in a PostgreSQL database.

use annex_database::{Migrations, OpenError, PostgresConnections, PostgresDatabase};

use crate::limits::Limits;
use crate::sql::SqlStore;

/// Conversations in a PostgreSQL database, which several processes may share. Their leases are in the table `replica` of
/// the same database.
pub type PostgresStore = SqlStore<PostgresDatabase>;

/// The migrations of the tables of conversations and tasks.
pub const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_conversation_migrations",
    files: &[
        (1, "conversations", include_str!("../migrations/postgres/1_conversations.sql")),
        (2, "retention", include_str!("../migrations/postgres/2_retention.sql")),
        (3, "receipts", include_str!("../migrations/postgres/3_receipts.sql")),
    ],
};

impl SqlStore<PostgresDatabase> {
    /// Opens the store over connections that other stores may share, and runs the migrations of its tables. Closing the
    /// store closes the connections.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the database is not reached, [`OpenError::Migration`] when a later version of the
    /// software wrote the tables. Neither error contains the URL.
    pub async fn open(connections: &PostgresConnections, limits: Limits) -> Result<Self, OpenError> {
        Ok(Self::on(PostgresDatabase::open(connections, MIGRATIONS).await?, limits))
    }
}
