//! Stores to test.

use std::future::Future;

use annex_database::PostgresConnections;
use annex_tenants::TenantStores;
use tempfile::TempDir;

use crate::cluster::Scratch;

pub(crate) async fn on_sqlite<F: Future<Output = ()>>(case: impl FnOnce(TenantStores) -> F) {
    let restart = Restart::in_sqlite();
    case(restart.open().await).await;
}

/// Runs a case on PostgreSQL. Without a PostgreSQL server, prints a message and passes.
pub(crate) async fn on_postgres<F: Future<Output = ()> + Send + 'static>(case: impl FnOnce(TenantStores) -> F) {
    let Some(restart) = Restart::in_postgres().await else { return };
    let outcome = tokio::spawn(case(restart.open().await)).await;
    restart.remove().await;
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure.into_panic());
    }
}

/// A place where stores are opened again and again, as by processes that follow each other.
pub(crate) enum Restart {
    Sqlite(TempDir),
    Postgres(Scratch),
}

impl Restart {
    pub(crate) fn in_sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// Creates a database for restarts. Without a PostgreSQL server, prints a message and returns `None`.
    pub(crate) async fn in_postgres() -> Option<Self> {
        Scratch::create().await.map(Self::Postgres)
    }

    pub(crate) async fn open(&self) -> TenantStores {
        match self {
            Self::Sqlite(folder) => TenantStores::open_file(&folder.path().join("tenants.db")).await.unwrap(),
            Self::Postgres(scratch) => {
                let connections = PostgresConnections::new(scratch.url(), 8).unwrap();
                TenantStores::open_postgres(&connections).await.unwrap()
            }
        }
    }

    /// The stores of the next process, after the process with `store` has stopped.
    pub(crate) async fn after(&self, store: TenantStores) -> TenantStores {
        store.close().await;
        self.open().await
    }

    pub(crate) async fn remove(self) {
        if let Self::Postgres(scratch) = self {
            scratch.remove().await;
        }
    }
}
