//! Keys of extensions in one SQLite file, so that they outlive the process.

use std::path::{Path, PathBuf};

use annex_database::{Database, Migrations, Row, SqliteDatabase, SqliteTransaction, Value, from_sql, to_sql};
use async_trait::async_trait;
use sqlx::migrate::MigrateError;

use crate::store::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, SCOPES_PER_PAGE, Scope, ScopeKind, Space, Usage, incremented,
};

mod statements;

/// Each sets `PRAGMA user_version`, where the version was before there was a table of migrations.
const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_migrations",
    files: &[
        (1, "keys", include_str!("../migrations/sqlite/1_keys.sql")),
        (2, "scopes", include_str!("../migrations/sqlite/2_scopes.sql")),
    ],
};
/// The number of the last migration.
const VERSION: i64 = MIGRATIONS.latest();

/// The reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueOpenError {
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

/// Keys in one SQLite file, as [`SqliteDatabase`] keeps it: what was set survives any end of the process, and a power cut
/// can take the latest changes with it.
#[derive(Debug)]
pub struct SqliteKeyValueStore {
    database: SqliteDatabase,
}

impl SqliteKeyValueStore {
    /// Opens the file; creates it if needed, readable for its owner only.
    ///
    /// # Errors
    /// When the file cannot be created or written, is no database, or was written by a later version of the software.
    pub async fn open(path: &Path) -> Result<Self, KeyValueOpenError> {
        let opened = SqliteDatabase::open_with_user_version(path, MIGRATIONS).await;
        let database = opened.map_err(|error| KeyValueOpenError::of(path, error))?;
        Ok(Self { database })
    }

    async fn begin(&self) -> Result<SqliteTransaction, KeyValueError> {
        self.database.begin().await.map_err(unavailable)
    }
}

impl KeyValueOpenError {
    fn of(path: &Path, error: annex_database::OpenError) -> Self {
        let path = path.to_owned();
        match error {
            annex_database::OpenError::File { path, source } => Self::File { path, source },
            annex_database::OpenError::Database(source) => Self::Database { path, source },
            annex_database::OpenError::Migration(MigrateError::VersionMissing(found)) => Self::Version { path, found },
            // The error of the database itself says more than that it came with a migration.
            annex_database::OpenError::Migration(MigrateError::Execute(source)) => Self::Database { path, source },
            annex_database::OpenError::Migration(error) => Self::Database { path, source: error.into() },
        }
    }
}

fn unavailable(error: sqlx::Error) -> KeyValueError {
    KeyValueError::Unavailable(error.into())
}

async fn commit(transaction: SqliteTransaction) -> Result<(), KeyValueError> {
    SqliteDatabase::commit(transaction).await.map_err(unavailable)
}

#[async_trait]
impl KeyValueStore for SqliteKeyValueStore {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        let rows = self.database.read(statements::SELECT_VALUE, &in_bucket(space, [Value::Text(key)])).await;
        value_of(rows.map_err(unavailable)?.first())
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let mut transaction = self.begin().await?;
        put(&mut transaction, space, key, &value, quota).await?;
        commit(transaction).await
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        let mut transaction = self.begin().await?;
        let values = in_bucket(space, [Value::Text(key)]);
        let deleted =
            SqliteDatabase::query(&mut transaction, statements::DELETE, &values).await.map_err(unavailable)?;
        if let Some(row) = deleted.first() {
            // The statement that deletes says what it freed, so the sum follows what was there.
            let freed = row.int(0).map_err(unavailable)?;
            count_scoped(&mut transaction, space, -1, -freed).await?;
        }
        commit(transaction).await
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let page = [Value::count(KEYS_PER_PAGE), Value::count(skip)];
        let rows = self.database.read(statements::SELECT_KEYS, &in_bucket(space, page)).await.map_err(unavailable)?;
        rows.iter().map(|row| row.text(0).map_err(unavailable)).collect()
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let mut transaction = self.begin().await?;
        let values = in_bucket(space, [Value::Text(key)]);
        // Read in the transaction that writes, so that no other increment comes in between.
        let rows = SqliteDatabase::query(&mut transaction, statements::SELECT_VALUE, &values).await;
        let value = value_of(rows.map_err(unavailable)?.first())?;
        let count = incremented(value.as_deref(), delta)?;
        put(&mut transaction, space, key, count.to_string().as_bytes(), quota).await?;
        commit(transaction).await?;
        Ok(count)
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        // What lasts comes before all that ends.
        let lasting = Scope::lasting("");
        let [kind, tenant, principal, id] = in_scope(after.unwrap_or(&lasting));
        let values = [kind, tenant, principal, id, Value::count(SCOPES_PER_PAGE)];
        let rows = self.database.read(statements::SELECT_SCOPES, &values).await.map_err(unavailable)?;
        let scopes: Result<Vec<_>, _> = rows.iter().map(scope_of_row).collect();
        Ok(scopes.map_err(unavailable)?.into_iter().flatten().collect())
    }

    async fn remove(&self, gone: &Scope) -> Result<(), KeyValueError> {
        let scope = in_scope(gone);
        let exists = self.database.read(statements::HAS_KEYS, &scope).await.map_err(unavailable)?;
        // Most have no keys, and then nobody has to wait for the lock.
        if exists.first().map(|row| row.int(0)).transpose().map_err(unavailable)? != Some(1) {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        // Counted while the rows are there, then deleted.
        for statement in [statements::UNCOUNT_SCOPE, statements::DELETE_SCOPE] {
            SqliteDatabase::execute(&mut transaction, statement, &scope).await.map_err(unavailable)?;
        }
        commit(transaction).await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

/// The parameters of statements about a scope.
fn in_scope(scope: &Scope) -> [Value<'_>; 4] {
    [Value::Text(scope.kind.name()), Value::Text(&scope.tenant), Value::Text(&scope.principal), Value::Text(&scope.id)]
}

/// The parameters of statements about a bucket, before `others`.
fn in_bucket<'a>(space: &'a Space, others: impl IntoIterator<Item = Value<'a>>) -> Vec<Value<'a>> {
    let bucket = [Value::Text(space.extension.as_str())];
    in_scope(&space.scope).into_iter().chain(bucket).chain(others).collect()
}

/// The value of a key, where there is a row for it.
fn value_of(row: Option<&impl Row>) -> Result<Option<Vec<u8>>, KeyValueError> {
    row.map(|row| row.bytes(0)).transpose().map_err(unavailable)
}

/// `None` for a kind that only later software knows.
fn scope_of_row(row: &impl Row) -> sqlx::Result<Option<Scope>> {
    let name = row.text(0)?;
    let Some(kind) = ScopeKind::ALL.into_iter().find(|known| known.name() == name) else { return Ok(None) };
    Ok(Some(Scope { kind, tenant: row.text(1)?, principal: row.text(2)?, id: row.text(3)? }))
}

/// The usage of a bucket, and the bytes of the key's value if there is one.
async fn usage(transaction: &mut SqliteTransaction, space: &Space, key: &str) -> sqlx::Result<(Usage, Option<i64>)> {
    let values = in_bucket(space, [Value::Text(key)]);
    let rows = SqliteDatabase::query(transaction, statements::SELECT_USAGE, &values).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok((Usage { keys: from_sql(row.int(0)?), bytes: from_sql(row.int(1)?) }, row.maybe_int(2)?))
}

/// The usage of all buckets of the extension that end together with a task or a conversation.
async fn scoped_usage(transaction: &mut SqliteTransaction, space: &Space) -> sqlx::Result<Usage> {
    let values = [Value::Text(&space.scope.tenant), Value::Text(space.extension.as_str())];
    let rows = SqliteDatabase::query(transaction, statements::SELECT_SCOPED_USAGE, &values).await?;
    let Some(row) = rows.first() else { return Ok(Usage::default()) };
    Ok(Usage { keys: from_sql(row.int(0)?), bytes: from_sql(row.int(1)?) })
}

/// Sets the key when the quota has room for it.
async fn put(
    transaction: &mut SqliteTransaction,
    space: &Space,
    key: &str,
    value: &[u8],
    quota: &Quota,
) -> Result<(), KeyValueError> {
    // A transaction begins with the writer's lock, so no other write comes between the check and the row.
    let (used, replaced) = usage(transaction, space, key).await.map_err(unavailable)?;
    quota.check(used, key, value, replaced.map(from_sql))?;
    // Keys that last are bounded by the quota of their bucket alone.
    if space.scope.kind.ends() {
        let scoped = scoped_usage(transaction, space).await.map_err(unavailable)?;
        quota.check_scoped(scoped, key, value, replaced.map(from_sql))?;
    }
    let values = in_bucket(space, [Value::Text(key), Value::Bytes(value)]);
    SqliteDatabase::execute(transaction, statements::PUT, &values).await.map_err(unavailable)?;
    match replaced {
        Some(bytes) => count_scoped(transaction, space, 0, to_sql(value.len()) - bytes).await,
        None => count_scoped(transaction, space, 1, to_sql(key.len() + value.len())).await,
    }
}

/// Adds to what all buckets of the extension that end hold together, so that no write has to sum them up.
async fn count_scoped(
    transaction: &mut SqliteTransaction,
    space: &Space,
    keys: i64,
    bytes: i64,
) -> Result<(), KeyValueError> {
    // Keys that last are in no sum: they are in one bucket per extension and tenant.
    if !space.scope.kind.ends() {
        return Ok(());
    }
    let values =
        [Value::Text(&space.scope.tenant), Value::Text(space.extension.as_str()), Value::Int(keys), Value::Int(bytes)];
    SqliteDatabase::execute(transaction, statements::COUNT_SCOPED, &values).await.map(drop).map_err(unavailable)
}
