//! Keys of extensions in one SQLite file, so that they outlive the process.

#![warn(missing_docs)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_runtime::{KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, Space, Usage, incremented};
use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, Transaction};

/// The version of the table, kept in the file.
const VERSION: i64 = 1;
/// Lengths are counted in bytes as in memory, also those of keys.
const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS entry (
        tenant TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (tenant, extension, key)
    ) WITHOUT ROWID;
    PRAGMA user_version = 1;
";

/// How long to wait for the lock when another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for a connection when others of this process use them.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTIONS: u32 = 4;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be created.
    #[error("the database file {} cannot be created", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// It is no database, or the database does not work.
    #[error("the database file {} cannot be opened", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// A later version of the software wrote it.
    #[error("the database file {} has version {found}, and this software knows none after {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
}

/// Keys in one SQLite file, in write-ahead mode with `synchronous = NORMAL`: what was set survives any end of the
/// process, and a power cut can take the latest changes with it.
#[derive(Debug)]
pub struct SqliteKeyValueStore {
    pool: SqlitePool,
}

impl SqliteKeyValueStore {
    /// Opens the file; creates it if needed, readable for its owner only.
    ///
    /// # Errors
    /// When the file cannot be created, is no database, or was written by a later version of the software.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        let broken = |source| OpenError::Database { path: path.to_owned(), source };
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(ACQUIRE_TIMEOUT);
        let pool = pool.connect_with(options).await.map_err(broken)?;
        let found: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&pool).await.map_err(broken)?;
        if found > VERSION {
            return Err(OpenError::Version { path: path.to_owned(), found });
        }
        sqlx::raw_sql(TABLE).execute(&pool).await.map_err(broken)?;
        Ok(Self { pool })
    }

    /// Takes the lock at once: a transaction that begins with reading cannot wait for it later.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, KeyValueError> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)
    }
}

/// What extensions keep is theirs; SQLite gives the companions of the file the same permissions.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn unavailable(error: sqlx::Error) -> KeyValueError {
    KeyValueError::Unavailable(error.into())
}

#[async_trait]
impl KeyValueStore for SqliteKeyValueStore {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        value(space, key).fetch_optional(&self.pool).await.map_err(unavailable)
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let mut transaction = self.begin().await?;
        put(&mut transaction, space, key, &value, quota).await?;
        transaction.commit().await.map_err(unavailable)
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        let delete = sqlx::query("DELETE FROM entry WHERE tenant = ? AND extension = ? AND key = ?");
        let delete = delete.bind(&space.tenant).bind(space.extension.as_str()).bind(key);
        delete.execute(&self.pool).await.map(drop).map_err(unavailable)
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let keys = sqlx::query_scalar(
            "SELECT key FROM entry WHERE tenant = ? AND extension = ? ORDER BY key LIMIT ? OFFSET ?",
        );
        let keys = keys.bind(&space.tenant).bind(space.extension.as_str());
        let keys = keys.bind(number(KEYS_PER_PAGE)).bind(i64::try_from(skip).unwrap_or(i64::MAX));
        keys.fetch_all(&self.pool).await.map_err(unavailable)
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let mut transaction = self.begin().await?;
        let found = value(space, key).fetch_optional(&mut *transaction).await.map_err(unavailable)?;
        let count = incremented(found.as_deref(), delta)?;
        put(&mut transaction, space, key, count.to_string().as_bytes(), quota).await?;
        transaction.commit().await.map_err(unavailable)?;
        Ok(count)
    }
}

type ValueQuery<'a> = sqlx::query::QueryScalar<'a, Sqlite, Vec<u8>, sqlx::sqlite::SqliteArguments>;

fn value<'a>(space: &'a Space, key: &'a str) -> ValueQuery<'a> {
    let value = sqlx::query_scalar("SELECT value FROM entry WHERE tenant = ? AND extension = ? AND key = ?");
    value.bind(&space.tenant).bind(space.extension.as_str()).bind(key)
}

/// Sets the key when the quota has room for it.
async fn put(
    transaction: &mut Transaction<'static, Sqlite>,
    space: &Space,
    key: &str,
    value: &[u8],
    quota: &Quota,
) -> Result<(), KeyValueError> {
    let usage = sqlx::query_as(
        "SELECT COUNT(*), COALESCE(SUM(LENGTH(CAST(key AS BLOB)) + LENGTH(value)), 0),
            MAX(CASE WHEN key = ? THEN LENGTH(value) END)
         FROM entry WHERE tenant = ? AND extension = ?",
    );
    let usage = usage.bind(key).bind(&space.tenant).bind(space.extension.as_str());
    let (keys, bytes, replaced): (i64, i64, Option<i64>) =
        usage.fetch_one(&mut **transaction).await.map_err(unavailable)?;
    quota.check(Usage { keys: count(keys), bytes: count(bytes) }, key, value, replaced.map(count))?;
    let set = sqlx::query("INSERT OR REPLACE INTO entry (tenant, extension, key, value) VALUES (?, ?, ?, ?)");
    let set = set.bind(&space.tenant).bind(space.extension.as_str()).bind(key).bind(value);
    set.execute(&mut **transaction).await.map(drop).map_err(unavailable)
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
