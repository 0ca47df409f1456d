//! Keys of extensions in a PostgreSQL database.

use std::time::Duration;

use annex_database::{Migrations, OpenError, PostgresConnections, PostgresDatabase};

use crate::sql::{KeyDatabase, SqlKeyValueStore, statements};

/// Keys in a PostgreSQL database. It may be the same database that stores the tasks. Any number of processes may write.
/// An advisory lock per bucket serializes the changes of the bucket.
pub type PostgresKeyValueStore = SqlKeyValueStore<PostgresDatabase>;

/// Migrations of the key tables.
pub const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_keyvalue_migrations",
    files: &[(1, "keys", include_str!("../migrations/postgres/1_keys.sql"))],
};

impl KeyDatabase for PostgresDatabase {
    // An arbitrary seed that no other lock uses.
    const LOCK: Option<&'static str> = Some("SELECT pg_advisory_xact_lock(hashtextextended($1, 4711240514))");
    const HAS_BOUNDED_NAMES: bool = true;
    const PUT: &'static str = statements::PUT_WITH_TIME;
    const SELECT_SCOPES: &'static str = statements::SELECT_IDLE_SCOPES;
}

impl SqlKeyValueStore<PostgresDatabase> {
    /// Runs the migrations on a shared pool. Closing the store closes the pool for all stores that share the pool.
    ///
    /// [`scopes`](crate::KeyValueStore::scopes) skips a scope if one of its keys was set less than `spared` ago.
    /// Another process may have set this key in a turn whose task or conversation is not stored yet. `spared` must be
    /// longer than any turn.
    ///
    /// # Errors
    /// [`OpenError::Database`] if the database cannot be reached, [`OpenError::Migration`] if a later version of the
    /// software wrote the tables. Neither error contains the URL.
    pub async fn open(connections: &PostgresConnections, spared: Duration) -> Result<Self, OpenError> {
        Ok(Self::on(PostgresDatabase::open(connections, MIGRATIONS).await?, spared))
    }
}
