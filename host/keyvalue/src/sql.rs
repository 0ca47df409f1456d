//! Keys in a SQL database. Common code for SQLite and PostgreSQL.

mod names;
pub(crate) mod statements;

use std::time::Duration;

use annex_database::{Database, Row, Value, from_sql, outlast_for, to_sql};
use async_trait::async_trait;

use self::names::Names;
use crate::store::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, SCOPES_PER_PAGE, Scope, Space, Usage, incremented,
};

/// Upper bound for `spared`, because a database cannot subtract an arbitrarily long time from the current time.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Time for which setting a key is retried after the connection is lost.
const SET_RETRY_TIME: Duration = Duration::from_secs(3);

/// Differences between the databases. Both forms of a statement take the same parameters.
pub trait KeyDatabase: Database {
    /// Statement that locks the name given as its parameter until the transaction ends. `None` if a write transaction
    /// already excludes other writers (SQLite).
    const LOCK: Option<&'static str>;
    /// True if names must not contain NUL and the names in an index entry must not exceed 2,704 bytes in total
    /// (PostgreSQL).
    const HAS_BOUNDED_NAMES: bool;
    /// Statement that sets a key.
    const PUT: &'static str;
    /// Statement that selects the scopes of tasks and conversations. It skips scopes with a key that was set within the
    /// time `spared`.
    const SELECT_SCOPES: &'static str;
}

/// Keys in a SQL database.
#[derive(Debug)]
pub struct SqlKeyValueStore<D> {
    database: D,
    /// A scope is not listed if one of its keys was set less than this time ago. Another process may have set the key
    /// in a turn whose task or conversation is not stored yet.
    spared: Duration,
}

/// A key of a bucket, in a transaction that holds the lock of the bucket.
struct LockedKey<'a, D: KeyDatabase> {
    transaction: D::Transaction,
    space: &'a Space,
    names: Names<'a>,
    key: &'a str,
}

/// Yields once, so that a call of an extension always waits for the database. Otherwise the host's work for an
/// immediate answer would count as CPU time of the extension.
async fn wait() {
    tokio::task::yield_now().await;
}

fn unavailable(error: sqlx::Error) -> KeyValueError {
    KeyValueError::Unavailable(error.into())
}

/// True if a shared database is unreachable and a retry may succeed.
fn may_pass<D: Database>(error: &KeyValueError) -> bool {
    let KeyValueError::Unavailable(cause) = error else { return false };
    !D::HAS_ONE_WRITER && cause.downcast_ref().is_some_and(annex_database::may_pass)
}

impl<D: KeyDatabase> SqlKeyValueStore<D> {
    pub(crate) fn on(database: D, spared: Duration) -> Self {
        Self { database, spared: spared.min(A_YEAR) }
    }

    /// Begins a transaction and locks the bucket, if the database has several writers.
    async fn begin(&self, names: &Names<'_>) -> Result<D::Transaction, KeyValueError> {
        wait().await;
        let mut transaction = self.database.begin().await.map_err(unavailable)?;
        if let Some(lock) = D::LOCK {
            D::execute(&mut transaction, lock, &[Value::Text(&names.lock())]).await.map_err(unavailable)?;
        }
        Ok(transaction)
    }

    async fn set_once(&self, space: &Space, key: &str, (value, quota): (&[u8], &Quota)) -> Result<(), KeyValueError> {
        let mut changing = self.change(space, key).await?;
        changing.put(value, quota).await?;
        changing.commit().await
    }

    async fn change<'a>(&self, space: &'a Space, key: &'a str) -> Result<LockedKey<'a, D>, KeyValueError> {
        let names = Names::of_bucket::<D>(space);
        let transaction = self.begin(&names).await?;
        Ok(LockedKey { transaction, space, names, key })
    }
}

#[async_trait]
impl<D: KeyDatabase> KeyValueStore for SqlKeyValueStore<D> {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        wait().await;
        let names = Names::of_bucket::<D>(space);
        let key = names::stored::<D>(key);
        let rows = self.database.read(statements::SELECT_VALUE, &names.in_bucket([Value::Text(&key)])).await;
        value_of(rows.map_err(unavailable)?.first())
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let key = names::stored::<D>(key);
        // Setting the same value twice is harmless, so a retry is safe even if the first attempt was stored.
        outlast_for(SET_RETRY_TIME, may_pass::<D>, || self.set_once(space, &key, (&value, quota))).await
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        let key = names::stored::<D>(key);
        let mut changing = self.change(space, &key).await?;
        changing.delete().await?;
        changing.commit().await
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        wait().await;
        let page = [Value::count(KEYS_PER_PAGE), Value::count(skip)];
        let names = Names::of_bucket::<D>(space);
        let rows = self.database.read(statements::SELECT_KEYS, &names.in_bucket(page)).await.map_err(unavailable)?;
        rows.iter().map(|row| row.text(0).map(names::read::<D>).map_err(unavailable)).collect()
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let key = names::stored::<D>(key);
        let mut changing = self.change(space, &key).await?;
        // Read in the write transaction, so that no other increment comes in between.
        let count = incremented(changing.value().await?.as_deref(), delta)?;
        changing.put(count.to_string().as_bytes(), quota).await?;
        changing.commit().await?;
        Ok(count)
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        // Lasting scopes sort before all scopes of tasks and conversations.
        let lasting = Scope::lasting("");
        let names = Names::of_scope::<D>(after.unwrap_or(&lasting));
        let [kind, tenant, principal, id] = names.in_scope();
        let spared = Value::count(self.spared.as_millis());
        let values = [kind, tenant, principal, id, Value::count(SCOPES_PER_PAGE), spared];
        let rows = self.database.read(D::SELECT_SCOPES, &values).await.map_err(unavailable)?;
        let scopes: Result<Vec<_>, _> = rows.iter().map(names::scope_of_row::<D>).collect();
        Ok(scopes.map_err(unavailable)?.into_iter().flatten().collect())
    }

    async fn count(&self, tenant: &str) -> Result<u64, KeyValueError> {
        let scope = Scope::lasting(tenant);
        let names = Names::of_scope::<D>(&scope);
        let [_, tenant, ..] = names.in_scope();
        let rows = self.database.read(statements::COUNT_KEYS, &[tenant]).await.map_err(unavailable)?;
        Ok(rows.first().map(|row| row.int(0)).transpose().map_err(unavailable)?.map_or(0, from_sql))
    }

    async fn remove(&self, gone: &Scope) -> Result<(), KeyValueError> {
        let names = Names::of_scope::<D>(gone);
        let rows = self.database.read(statements::HAS_KEYS, &names.in_scope()).await.map_err(unavailable)?;
        // Most scopes have no keys, so this avoids waiting for the lock.
        if rows.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin(&names).await?;
        // The usage is computed from the rows, so they are deleted second.
        for statement in [statements::UNCOUNT_SCOPE, statements::DELETE_SCOPE] {
            D::execute(&mut transaction, statement, &names.in_scope()).await.map_err(unavailable)?;
        }
        D::commit(transaction).await.map_err(unavailable)
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

/// The value in a row, if the key exists.
fn value_of(row: Option<&impl Row>) -> Result<Option<Vec<u8>>, KeyValueError> {
    row.map(|row| row.bytes(0)).transpose().map_err(unavailable)
}

impl<D: KeyDatabase> LockedKey<'_, D> {
    async fn value(&mut self) -> Result<Option<Vec<u8>>, KeyValueError> {
        let values = self.names.in_bucket([Value::Text(self.key)]);
        let rows = D::query(&mut self.transaction, statements::SELECT_VALUE, &values).await;
        value_of(rows.map_err(unavailable)?.first())
    }

    /// Sets the key if the quota allows. After an error the transaction must not be committed.
    async fn put(&mut self, value: &[u8], quota: &Quota) -> Result<(), KeyValueError> {
        let (used, replaced) = self.usage().await.map_err(unavailable)?;
        quota.check(used, self.key, value, replaced.map(from_sql))?;
        let values = self.names.in_bucket([Value::Text(self.key), Value::Bytes(value)]);
        D::execute(&mut self.transaction, D::PUT, &values).await.map_err(unavailable)?;
        // Lasting keys are bounded by the quota of their bucket alone.
        if !self.space.scope.kind.ends() {
            return Ok(());
        }
        let (keys, bytes) = match replaced {
            Some(bytes) => (0, to_sql(value.len()) - bytes),
            None => (1, to_sql(self.key.len() + value.len())),
        };
        quota.check_all_scoped(self.count_scoped(keys, bytes).await.map_err(unavailable)?)
    }

    async fn delete(&mut self) -> Result<(), KeyValueError> {
        let values = self.names.in_bucket([Value::Text(self.key)]);
        let deleted = D::query(&mut self.transaction, statements::DELETE, &values).await.map_err(unavailable)?;
        // The `DELETE` returns the freed bytes, so that the usage stays exact.
        if let Some(row) = deleted.first().filter(|_| self.space.scope.kind.ends()) {
            let freed = row.int(0).map_err(unavailable)?;
            self.count_scoped(-1, -freed).await.map_err(unavailable)?;
        }
        Ok(())
    }

    async fn commit(self) -> Result<(), KeyValueError> {
        D::commit(self.transaction).await.map_err(unavailable)
    }

    /// Usage of the bucket, and the size of the key's value if the key exists.
    async fn usage(&mut self) -> sqlx::Result<(Usage, Option<i64>)> {
        let values = self.names.in_bucket([Value::Text(self.key)]);
        let rows = D::query(&mut self.transaction, statements::SELECT_USAGE, &values).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok((Usage { keys: from_sql(row.int(0)?), bytes: from_sql(row.int(1)?) }, row.maybe_int(2)?))
    }

    /// Adds to the stored usage of all tasks and conversations, and returns the new usage. The stored usage avoids a
    /// sum over all keys on each write.
    async fn count_scoped(&mut self, keys: i64, bytes: i64) -> sqlx::Result<Usage> {
        let [tenant, extension] = self.names.of_usage();
        let values = [tenant, extension, Value::Int(keys), Value::Int(bytes)];
        let rows = D::query(&mut self.transaction, statements::COUNT_SCOPED, &values).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(Usage { keys: from_sql(row.int(0)?), bytes: from_sql(row.int(1)?) })
    }
}
