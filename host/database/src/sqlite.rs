//! An SQLite database.

mod connection;
mod error;
mod migrate;
mod readers;
mod statements;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annex_telemetry::enter_store;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

pub use self::statements::SqliteRow;

use self::connection::{Access, Connection, Work};
use self::error::{BUSY, CANTOPEN, READONLY, code_of, lasts};
use self::migrate::Unlisted;
use self::readers::Readers;
use self::statements::{Batch, Outcome};
use crate::database::{Database, Step, TransactionStart, Value};
use crate::{Migrations, OpenError};

/// An SQLite file with one writer connection and several reader connections, in write-ahead mode with `synchronous = NORMAL`.
///
/// Stored changes survive any end of the process, including `kill -9`. A power cut or a crash of the operating system can lose
/// the changes since the last checkpoint (about 16 MB of log). The file stays consistent: it then contains an earlier state. To
/// prevent this loss, every change would have to wait for the disk, which costs milliseconds per change.
///
/// Several processes can open one file on one machine. The file must not be on a network file system.
#[derive(Debug)]
pub struct SqliteDatabase {
    file: Arc<Path>,
    /// SQLite allows one writer at a time. Within this process, writers queue here instead of polling for the lock.
    writer: Arc<Mutex<Writer>>,
    readers: Readers,
}

/// The connection for writing.
#[derive(Debug)]
struct Writer {
    /// The connection. `None` after the database was closed. Also `None` after the connection's thread ended, until the
    /// next transaction opens a new connection.
    connection: Option<Connection>,
    /// True if the next transaction needs another connection, because of an error that an open connection may return for
    /// ever. SQLite does not notice that a read-only file has become writable, or that its volume is mounted again.
    /// Connections of one process share a part of their state, which stays read-only until all of them are closed.
    is_stale: bool,
    is_closed: bool,
}

/// A transaction on the writer connection.
#[derive(Debug)]
pub struct SqliteTransaction {
    /// `None` only while being dropped.
    writer: Option<OwnedMutexGuard<Writer>>,
    /// True if the connection may have an open transaction or unfinished work.
    is_open: bool,
}

/// Longest wait until a connection of this process is free.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

impl SqliteDatabase {
    /// Opens or creates the file, readable for its owner only, and runs the migrations.
    ///
    /// # Errors
    /// [`OpenError::File`] if the file, or another file in its folder, cannot be created or written.
    /// [`OpenError::Database`] if the file is not a database. [`OpenError::Migration`] if a later version of the
    /// software wrote the file.
    pub async fn open(path: &Path, migrations: Migrations) -> Result<Self, OpenError> {
        Self::open_unlisted(path, migrations, Unlisted::Run).await
    }

    /// Opens the file like [`open`](Self::open), for a store that kept its version in `PRAGMA user_version` before it had a
    /// table of migrations. Migrations up to that version are skipped. The last migration must set `user_version` to its own
    /// number, so that older software still finds the version.
    ///
    /// # Errors
    /// The errors of [`SqliteDatabase::open`]. If the version is later than the last migration, the source of
    /// [`OpenError::Migration`] is [`MigrateError::VersionMissing`](sqlx::migrate::MigrateError::VersionMissing) with that
    /// version.
    pub async fn open_with_user_version(path: &Path, migrations: Migrations) -> Result<Self, OpenError> {
        Self::open_unlisted(path, migrations, Unlisted::AfterUserVersion).await
    }

    async fn open_unlisted(path: &Path, migrations: Migrations, unlisted: Unlisted) -> Result<Self, OpenError> {
        create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let file: Arc<Path> = path.into();
        let connection =
            Connection::open(Arc::clone(&file), Access::Write).await.map_err(|error| not_opened(path, error))?;
        let migrated = connection.run(Work::Migrate(migrations, unlisted)).await;
        migrated.map_err(|error| not_opened(path, error))?;
        let writer = Writer { connection: Some(connection), is_stale: false, is_closed: false };
        Ok(Self { readers: Readers::of(Arc::clone(&file)), file, writer: Arc::new(Mutex::new(writer)) })
    }

    /// Waits until the writer connection is free, and takes it for one transaction.
    async fn writer(&self) -> sqlx::Result<SqliteTransaction> {
        let waiting = tokio::time::timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.writer).lock_owned());
        let mut writer = waiting.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if writer.is_closed {
            return Err(sqlx::Error::PoolClosed);
        }
        if writer.is_stale {
            self.readers.close_idle().await;
            if let Some(connection) = writer.connection.take() {
                connection.close().await;
            }
            writer.is_stale = false;
        }
        if writer.connection.is_none() {
            writer.connection = Some(Connection::open(Arc::clone(&self.file), Access::Write).await?);
        }
        Ok(SqliteTransaction { writer: Some(writer), is_open: false })
    }

    /// Sends work that leaves no transaction open.
    async fn run_alone(&self, work: Work) -> sqlx::Result<Outcome> {
        let mut transaction = self.writer().await?;
        transaction.is_open = true;
        let outcome = transaction.run(work).await;
        transaction.is_open = false;
        outcome
    }
}

impl SqliteTransaction {
    async fn run(&mut self, work: Work) -> sqlx::Result<Outcome> {
        let writer = self.writer.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        let outcome = writer.connection.as_ref().ok_or(sqlx::Error::WorkerCrashed)?.run(work).await;
        match &outcome {
            // The next transaction opens another connection.
            Err(sqlx::Error::WorkerCrashed) => writer.connection = None,
            Err(error) => writer.is_stale |= code_of(error).is_some_and(lasts),
            Ok(_) => {}
        }
        outcome
    }

    async fn begin(&mut self, steps: &[Step<'_>]) -> sqlx::Result<Outcome> {
        // Set before `BEGIN`: if the caller is dropped during the statement, the transaction may be open.
        self.is_open = true;
        self.run(Work::Begin(Batch::of_steps(steps))).await
    }
}

/// Rolls back an open transaction at once. Otherwise other processes would have to wait until this process begins its next
/// transaction. The next caller waits until the transaction is rolled back, so that the work of callers that have gone does not
/// add up.
impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take_if(|_| self.is_open) else { return };
        // If the thread has ended, so has the transaction.
        match writer.connection.as_ref().map(|connection| connection.send(Work::RollBack)) {
            Some(Ok(rolled_back)) => {
                let Ok(runtime) = Handle::try_current() else { return };
                runtime.spawn(async move {
                    if rolled_back.await.is_err() {
                        writer.connection = None;
                    }
                });
            }
            Some(Err(_)) => writer.connection = None,
            None => {}
        }
    }
}

/// Creates a file that only its owner can read: it will contain data of clients, including credentials. SQLite gives
/// the `-wal` and `-shm` files the same permissions.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Converts the error of a file that was not opened. If SQLite may not write the file, the new error names the file, because
/// SQLite's own message does not name it.
fn not_opened(path: &Path, error: sqlx::Error) -> OpenError {
    match (code_of(&error), error) {
        (Some(READONLY | CANTOPEN), sqlx::Error::Database(refused)) => {
            OpenError::File { path: path.to_owned(), source: std::io::Error::other(refused.message().to_owned()) }
        }
        (_, sqlx::Error::Migrate(error)) => OpenError::Migration(*error),
        (_, error) => error.into(),
    }
}

impl Database for SqliteDatabase {
    type Row = SqliteRow;
    type Transaction = SqliteTransaction;
    const LOCK_SWEEP: Option<&'static str> = None;
    const HAS_ONE_WRITER: bool = true;
    const SYSTEM: &'static str = "sqlite";

    async fn close(&self) {
        self.readers.close().await;
        let mut writer = self.writer.lock().await;
        writer.is_closed = true;
        if let Some(connection) = writer.connection.take() {
            connection.close().await;
        }
    }

    async fn begin(&self) -> sqlx::Result<Self::Transaction> {
        let _stage = enter_store(Self::SYSTEM, "begin");
        let mut transaction = self.writer().await?;
        transaction.begin(&[]).await?;
        Ok(transaction)
    }

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<TransactionStart<Self>> {
        let _stage = enter_store(Self::SYSTEM, "write");
        let mut transaction = self.writer().await?;
        match transaction.begin(steps).await {
            // Another process holds the lock, so no transaction was begun.
            Err(error) if code_of(&error) == Some(BUSY) => Err(error),
            outcome => Ok((transaction, outcome.map(|outcome| outcome.changes))),
        }
    }

    async fn execute_alone(&self, steps: &[Step<'_>]) -> sqlx::Result<bool> {
        let _stage = enter_store(Self::SYSTEM, "write");
        let expected: Vec<u64> = steps.iter().map(|step| step.changes).collect();
        let outcome = self.run_alone(Work::Transaction(Batch::of_steps(steps), expected.clone())).await?;
        Ok(outcome.changes == expected)
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter_store(Self::SYSTEM, "write");
        Ok(self.run_alone(Work::Alone(Batch::fixed(sql, values))).await?.rows)
    }

    async fn commit(mut transaction: Self::Transaction) -> sqlx::Result<()> {
        let _stage = enter_store(Self::SYSTEM, "commit");
        transaction.run(Work::Commit).await?;
        transaction.is_open = false;
        Ok(())
    }

    async fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        let _stage = enter_store(Self::SYSTEM, "write");
        Ok(transaction.run(Work::Continue(Batch::fixed(sql, values))).await?.changes.iter().sum())
    }

    async fn execute_all(transaction: &mut Self::Transaction, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        let _stage = enter_store(Self::SYSTEM, "write");
        Ok(transaction.run(Work::Continue(Batch::of_steps(steps))).await?.changes)
    }

    async fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter_store(Self::SYSTEM, "read");
        Ok(transaction.run(Work::Continue(Batch::fixed(sql, values))).await?.rows)
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter_store(Self::SYSTEM, "read");
        self.readers.read(sql, values).await
    }
}
