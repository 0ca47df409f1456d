//! Keys of extensions in one SQLite file, so that they outlive the process.

#![warn(missing_docs)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_runtime::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, SCOPES_PER_PAGE, Scope, ScopeKind, Space, Usage, incremented,
};
use async_trait::async_trait;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Arguments, Connection, Sqlite, Transaction};

mod schema;
mod statements;

use schema::VERSION;

/// How long to wait for the lock when another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for a connection when others of this process use them.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTIONS: u32 = 4;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be created, or not written.
    #[error(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        path.display()
    )]
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
    /// When the file cannot be created or written, is no database, or was written by a later version of the software.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        let broken = |source| OpenError::Database { path: path.to_owned(), source };
        // Where a full disk has ended a transaction, the connection takes it for still open, and would never begin another.
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .before_acquire(|connection, _| Box::pin(async { Ok(!connection.is_in_transaction()) }));
        let pool = pool.connect_with(options).await.map_err(broken)?;
        let found = schema::bring_up_to_date(&pool).await.map_err(broken)?;
        if found > VERSION {
            return Err(OpenError::Version { path: path.to_owned(), found });
        }
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
        let value = sqlx::query_scalar_with(statements::SELECT_VALUE, bucket(space)?).bind(key);
        value.fetch_optional(&self.pool).await.map_err(unavailable)
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let mut transaction = self.begin().await?;
        put(&mut transaction, space, key, &value, quota).await?;
        transaction.commit().await.map_err(unavailable)
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        let mut transaction = self.begin().await?;
        let delete = sqlx::query_scalar_with(statements::DELETE, bucket(space)?).bind(key);
        let freed: Option<i64> = delete.fetch_optional(&mut *transaction).await.map_err(unavailable)?;
        if let Some(bytes) = freed {
            count_scoped(&mut transaction, space, -1, -bytes).await?;
        }
        transaction.commit().await.map_err(unavailable)
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let keys = sqlx::query_scalar_with(statements::SELECT_KEYS, bucket(space)?);
        let keys = keys.bind(number(KEYS_PER_PAGE)).bind(i64::try_from(skip).unwrap_or(i64::MAX));
        keys.fetch_all(&self.pool).await.map_err(unavailable)
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let mut transaction = self.begin().await?;
        let value = sqlx::query_scalar_with(statements::SELECT_VALUE, bucket(space)?).bind(key);
        let value: Option<Vec<u8>> = value.fetch_optional(&mut *transaction).await.map_err(unavailable)?;
        let count = incremented(value.as_deref(), delta)?;
        put(&mut transaction, space, key, count.to_string().as_bytes(), quota).await?;
        transaction.commit().await.map_err(unavailable)?;
        Ok(count)
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        // What lasts comes before all that ends.
        let lasting = Scope::lasting("");
        let scopes = sqlx::query_as_with(statements::SELECT_SCOPES, scope(after.unwrap_or(&lasting))?);
        let scopes = scopes.bind(number(SCOPES_PER_PAGE));
        let scopes: Vec<(String, String, String, String)> = scopes.fetch_all(&self.pool).await.map_err(unavailable)?;
        Ok(scopes.into_iter().filter_map(scope_of_row).collect())
    }

    async fn remove(&self, gone: &Scope) -> Result<(), KeyValueError> {
        let exists = sqlx::query_scalar_with(statements::HAS_KEYS, scope(gone)?);
        // Most have no keys, and then nobody has to wait for the lock.
        if !exists.fetch_one(&self.pool).await.map_err(unavailable)? {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        for statement in [statements::UNCOUNT_SCOPE, statements::DELETE_SCOPE] {
            let query = sqlx::query_with(statement, scope(gone)?);
            query.execute(&mut *transaction).await.map_err(unavailable)?;
        }
        transaction.commit().await.map_err(unavailable)
    }
}

/// The first parameters of statements about a scope.
fn scope(scope: &Scope) -> Result<SqliteArguments, KeyValueError> {
    let mut arguments = SqliteArguments::default();
    for text in [scope.kind.name(), &scope.tenant, &scope.principal, &scope.id] {
        arguments.add(text).map_err(KeyValueError::Unavailable)?;
    }
    Ok(arguments)
}

/// The first parameters of statements about a bucket.
fn bucket(space: &Space) -> Result<SqliteArguments, KeyValueError> {
    let mut arguments = scope(&space.scope)?;
    arguments.add(space.extension.as_str()).map_err(KeyValueError::Unavailable)?;
    Ok(arguments)
}

fn scope_of_row((kind, tenant, principal, id): (String, String, String, String)) -> Option<Scope> {
    let kind = ScopeKind::ALL.into_iter().find(|known| known.name() == kind)?;
    Some(Scope { kind, tenant, principal, id })
}

/// Sets the key when the quota has room for it.
async fn put(
    transaction: &mut Transaction<'static, Sqlite>,
    space: &Space,
    key: &str,
    value: &[u8],
    quota: &Quota,
) -> Result<(), KeyValueError> {
    let usage = sqlx::query_as_with(statements::SELECT_USAGE, bucket(space)?).bind(key);
    let (keys, bytes, replaced): (i64, i64, Option<i64>) =
        usage.fetch_one(&mut **transaction).await.map_err(unavailable)?;
    quota.check(Usage { keys: count(keys), bytes: count(bytes) }, key, value, replaced.map(count))?;
    if space.scope.kind.ends() {
        let scoped = sqlx::query_as(statements::SELECT_SCOPED_USAGE);
        let scoped = scoped.bind(&space.scope.tenant).bind(space.extension.as_str());
        let scoped: Option<(i64, i64)> = scoped.fetch_optional(&mut **transaction).await.map_err(unavailable)?;
        let (keys, bytes) = scoped.unwrap_or_default();
        quota.check_scoped(Usage { keys: count(keys), bytes: count(bytes) }, key, value, replaced.map(count))?;
    }
    let set = sqlx::query_with(statements::PUT, bucket(space)?).bind(key).bind(value);
    set.execute(&mut **transaction).await.map_err(unavailable)?;
    let added = match replaced {
        Some(bytes) => (0, number(value.len()) - bytes),
        None => (1, number(key.len() + value.len())),
    };
    count_scoped(transaction, space, added.0, added.1).await
}

/// Adds to what all buckets of the extension that end hold together, so that no write has to sum them up.
async fn count_scoped(
    transaction: &mut Transaction<'static, Sqlite>,
    space: &Space,
    keys: i64,
    bytes: i64,
) -> Result<(), KeyValueError> {
    if !space.scope.kind.ends() {
        return Ok(());
    }
    let count = sqlx::query(statements::COUNT_SCOPED).bind(&space.scope.tenant).bind(space.extension.as_str());
    count.bind(keys).bind(bytes).execute(&mut **transaction).await.map(drop).map_err(unavailable)
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
