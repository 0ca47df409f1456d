//! Keys of extensions in a PostgreSQL database.

use std::time::Duration;

use annex_database::{Migrations, OpenError, PostgresConnections, PostgresDatabase};

use crate::sql::{KeyDatabase, SqlKeyValueStore, statements};

/// Keys in a PostgreSQL database, which may be the one that keeps tasks: any number of processes change them, and a lock by
/// name keeps the changes of one bucket apart.
pub type PostgresKeyValueStore = SqlKeyValueStore<PostgresDatabase>;

/// The migrations of the tables of keys.
pub const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_keyvalue_migrations",
    files: &[(1, "keys", include_str!("../migrations/postgres/1_keys.sql"))],
};

impl KeyDatabase for PostgresDatabase {
    // The number is an arbitrary one that nothing else locks.
    const LOCK: Option<&'static str> = Some("SELECT pg_advisory_xact_lock(hashtextextended($1, 4711240514))");
    const HAS_BOUNDED_NAMES: bool = true;
    const PUT: &'static str = statements::PUT_WITH_TIME;
    const SELECT_SCOPES: &'static str = statements::SELECT_IDLE_SCOPES;
}

impl SqlKeyValueStore<PostgresDatabase> {
    /// Brings the tables up to date, over connections that others may share. Whoever closes the store closes them for all.
    ///
    /// Scopes with a key that was set within `spared` are not listed: the turn of another process may have set it before its
    /// task or conversation is stored. It is longer than any turn takes.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the database is not reached, [`OpenError::Migration`] when a later version of the
    /// software wrote the tables. Neither repeats the URL.
    pub async fn open(connections: &PostgresConnections, spared: Duration) -> Result<Self, OpenError> {
        Ok(Self::on(PostgresDatabase::open(connections, MIGRATIONS).await?, spared))
    }
}
