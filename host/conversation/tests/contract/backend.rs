//! The stores that each case runs on.

use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_conversation::{Leases, Limits, MemoryBounds, MemoryStore, PostgresStore, Replica, SqliteStore};
use annex_database::PostgresConnections;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::runtime::Handle;

use crate::cluster::Scratch;
use crate::table;

pub(crate) type Store = Arc<dyn annex_conversation::Store>;

/// The store of the conversations of one case, and its replicas.
#[derive(Clone)]
pub(crate) enum Backend {
    Memory(Arc<Registry>),
    Sqlite(PathBuf),
    Postgres(String),
}

/// The leases of the replicas of one case in memory. A lease is valid until the case ends it.
#[derive(Default)]
pub(crate) struct Registry(Mutex<HashSet<String>>);

impl Leases for Registry {
    fn is_alive(&self, replica: &Replica) -> bool {
        !self.0.lock().unwrap().contains(replica.id())
    }
}

/// The replicas that cases name.
const REPLICAS: [&str; 4] = ["one", "two", "three", "four"];

impl Backend {
    pub(crate) async fn store(&self) -> Store {
        self.within(Limits::default()).await
    }

    pub(crate) async fn within(&self, limits: Limits) -> Store {
        let backend = self.clone();
        let runtime = Handle::current();
        // On a thread of its own: sqlx's migrations are no future that can be sent.
        tokio::task::spawn_blocking(move || runtime.block_on(backend.open(limits))).await.unwrap()
    }

    async fn open(self, limits: Limits) -> Store {
        match &self {
            Self::Memory(leases) => {
                Arc::new(MemoryStore::among_others(MemoryBounds { limits, ..MemoryBounds::default() }, leases.clone()))
            }
            Self::Sqlite(file) => {
                let store = SqliteStore::open(file, Some(&"one".into()), limits).await.unwrap();
                for replica in &REPLICAS[1..] {
                    self.execute(format!("INSERT INTO process (id) VALUES ('{replica}')")).await;
                }
                Arc::new(store)
            }
            Self::Postgres(url) => {
                let connections = PostgresConnections::new(url, 8).unwrap();
                Arc::new(PostgresStore::open(&connections, limits).await.unwrap())
            }
        }
    }

    /// Ends the lease of a replica.
    pub(crate) async fn end_lease(&self, replica: &str) {
        match self {
            Self::Memory(leases) => drop(leases.0.lock().unwrap().insert(replica.to_owned())),
            Self::Sqlite(_) => self.execute(format!("DELETE FROM process WHERE id = '{replica}'")).await,
            Self::Postgres(_) => {
                self.execute(table::end(replica)).await;
            }
        }
    }

    /// The texts that a query of a SQLite file returns.
    pub(crate) async fn rows(&self, sql: &'static str) -> Vec<String> {
        let Self::Sqlite(file) = self else { panic!("{sql}: not a SQLite file") };
        let connection = rusqlite::Connection::open(file).unwrap();
        let mut query = connection.prepare(sql).unwrap();
        query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Begins the lease of a replica again.
    pub(crate) async fn begin_lease(&self, replica: &str) {
        match self {
            Self::Memory(leases) => drop(leases.0.lock().unwrap().remove(replica)),
            Self::Sqlite(_) => self.execute(format!("INSERT INTO process (id) VALUES ('{replica}')")).await,
            Self::Postgres(_) => self.execute(table::endless(replica)).await,
        }
    }

    /// Waits until the database has ended the work of processes that are gone.
    pub(crate) async fn disconnect(&self) {
        let Self::Postgres(url) = self else { return };
        let mut connection = PgConnection::connect(url).await.unwrap();
        let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::raw_sql(end).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// A number that is read past the store.
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        match self {
            Self::Memory(_) => unreachable!("it is no database"),
            Self::Sqlite(file) => {
                rusqlite::Connection::open(file).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
            }
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let number = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                number
            }
        }
    }

    /// Executes SQL past the store.
    pub(crate) async fn execute(&self, sql: impl Into<String>) {
        let sql = sql.into();
        match self {
            Self::Memory(_) => {}
            Self::Sqlite(file) => {
                let file = file.clone();
                // On a thread of its own: the case may have to go on until the lock is free.
                let executed = tokio::task::spawn_blocking(move || {
                    let connection = rusqlite::Connection::open(file)?;
                    connection.busy_timeout(Duration::from_secs(10))?;
                    connection.execute_batch(&sql)
                });
                executed.await.unwrap().unwrap();
            }
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }
}

pub(crate) async fn on_memory<F: Future<Output = ()>>(case: impl FnOnce(Backend) -> F) {
    case(Backend::Memory(Arc::default())).await;
}

pub(crate) async fn on_sqlite<F: Future<Output = ()>>(case: impl FnOnce(Backend) -> F) {
    let folder = tempfile::tempdir().unwrap();
    case(Backend::Sqlite(folder.path().join("conversations.db"))).await;
}

/// Runs a case on PostgreSQL. Without a PostgreSQL server, prints a message and passes.
pub(crate) async fn on_postgres<F: Future<Output = ()> + Send + 'static>(case: impl FnOnce(Backend) -> F) {
    let Some(scratch) = Scratch::create().await else { return };
    let backend = Backend::Postgres(scratch.url().to_owned());
    backend.execute(table::CREATE.to_owned()).await;
    for replica in REPLICAS {
        backend.execute(table::endless(replica)).await;
    }
    let outcome = tokio::spawn(case(backend)).await;
    scratch.remove().await;
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure.into_panic());
    }
}

pub(crate) fn memory(bounds: MemoryBounds) -> Store {
    Arc::new(MemoryStore::new(bounds))
}
