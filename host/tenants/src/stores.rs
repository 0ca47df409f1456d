//! Opens and closes the three stores of a process together.

use std::path::Path;
use std::sync::Arc;

use annex_database::{Database, Migrations, OpenError, PostgresConnections, PostgresDatabase, SqliteDatabase};

use futures::future::LocalBoxFuture;

use crate::memory::{MemoryComponents, MemoryTenants, MemoryUsage};
use crate::sql::SqlTenantStore;
use crate::{ComponentStore, TenantStore, UsageStore};

/// The three stores of one process. All three use the same file, the same database, or memory. Clones share the stores.
#[derive(Clone)]
pub struct TenantStores {
    /// The tenants that were added while servers ran.
    pub tenants: Arc<dyn TenantStore>,
    /// The usage of tenants.
    pub usage: Arc<dyn UsageStore>,
    /// The components that were uploaded for tenants.
    pub components: Arc<dyn ComponentStore>,
    is_shared: bool,
}

/// The table in which a database lists the migrations of this crate.
const TABLE: &str = "_tenant_migrations";

const SQLITE_MIGRATIONS: Migrations = Migrations {
    table: TABLE,
    files: &[
        (1, "tenants", include_str!("../migrations/sqlite/1_tenants.sql")),
        (2, "pulled", include_str!("../migrations/sqlite/2_pulled.sql")),
    ],
};

/// The migrations of a PostgreSQL database.
pub const POSTGRES_MIGRATIONS: Migrations = Migrations {
    table: TABLE,
    files: &[
        (1, "tenants", include_str!("../migrations/postgres/1_tenants.sql")),
        (2, "pulled", include_str!("../migrations/postgres/2_pulled.sql")),
    ],
};

impl TenantStores {
    /// Empty stores in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            tenants: Arc::new(MemoryTenants::default()),
            usage: Arc::new(MemoryUsage::default()),
            components: Arc::new(MemoryComponents::default()),
            is_shared: false,
        }
    }

    /// Opens the SQLite file and runs the migrations of its tables. Creates a missing file, which only its owner can read.
    ///
    /// # Errors
    /// The errors of [`SqliteDatabase::open`].
    pub fn open_file(path: &Path) -> LocalBoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move { Ok(Self::on(SqliteDatabase::open(path, SQLITE_MIGRATIONS).await?, false)) })
    }

    /// Opens the stores in a PostgreSQL database and runs the migrations of their tables. Several processes can use one
    /// database. Closing the stores also closes the connections for the other stores of this process that share `connections`.
    ///
    /// # Errors
    /// The errors of [`PostgresDatabase::open`].
    pub fn open_postgres(connections: &PostgresConnections) -> LocalBoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move { Ok(Self::on(PostgresDatabase::open(connections, POSTGRES_MIGRATIONS).await?, true)) })
    }

    fn on<D: Database>(database: D, is_shared: bool) -> Self {
        let store = Arc::new(SqlTenantStore::on(database));
        Self { tenants: store.clone(), usage: store.clone(), components: store, is_shared }
    }

    /// True if other processes may change the stored tenants.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Waits for changes in progress and closes the connections of a database. Later calls fail.
    pub async fn close(&self) {
        // One database has all three stores.
        self.tenants.close().await;
    }
}
