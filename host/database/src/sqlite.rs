//! An SQLite database.

use std::future::ready;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annex_fairness::{FairPlaces, current_tenant};
use annex_telemetry::{Stage, enter};
use futures::TryStreamExt;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Sqlite};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep};

use crate::database::{Database, Row, Step, TransactionStart, Value, bind};
use crate::text::{Form, statements_of_transaction, text_of};
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
    options: SqliteConnectOptions,
    /// SQLite allows one writer at a time. Within this process, writers queue here instead of polling for the lock.
    writer: Arc<Mutex<Writer>>,
    readers: Readers,
}

/// Connections for reading. They are not a pool of sqlx, because such a pool pings each returned connection, which costs as
/// much as a read.
#[derive(Debug)]
struct Readers {
    options: SqliteConnectOptions,
    /// Each connection is opened on first use.
    connections: [Mutex<Option<SqliteConnection>>; READERS],
    /// One place per connection. Waiting tenants are served round robin.
    free: FairPlaces,
    is_closed: AtomicBool,
}

/// The connection for writing.
#[derive(Debug)]
struct Writer {
    /// The connection. `None` when the database is closed, and after the connection broke, until the next connection is opened.
    connection: Option<SqliteConnection>,
    left: WriterCondition,
    /// True if a change was refused because the file was read-only. Connections of one process share a part of their
    /// state, which stays read-only until all of them are closed.
    was_read_only: bool,
    is_closed: bool,
}

/// State of the writer connection after the last transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterCondition {
    /// Ready for the next transaction.
    Ready,
    /// A transaction may still be open.
    Open,
    /// A change was refused because the file was read-only when the connection was opened. SQLite does not notice
    /// that the file becomes writable later.
    ReadOnly,
}

/// A transaction on the writer connection.
#[derive(Debug)]
pub struct SqliteTransaction {
    /// `None` only while being dropped.
    writer: Option<OwnedMutexGuard<Writer>>,
}

// `IMMEDIATE` takes the write lock at the beginning. A transaction that begins by reading cannot wait for the lock
// later.
const BEGIN: &str = "BEGIN IMMEDIATE;";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

const READERS: usize = 4;
/// Number of prepared statements that a connection caches. Each kind of change has one statement per number of
/// changes that are stored together.
const STATEMENTS: usize = 256;
/// Page cache of a connection: 16 MiB. A negative number counts KiB, a positive number counts pages.
const CACHE: &str = "-16384";
/// Number of pages in the write-ahead log that triggers a checkpoint. A page that many tasks share is in the log many
/// times and is written to the file once.
const CHECKPOINT: &str = "4000";
/// Longest wait for the write lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before another attempt to open a locked file. SQLite waits for locks elsewhere, but not while it opens a new
/// file.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait for a connection of this process.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

impl SqliteDatabase {
    /// Opens or creates the file, readable for its owner only, and runs the migrations.
    ///
    /// # Errors
    /// [`OpenError::File`] if the file, or another file in its folder, cannot be created or written.
    /// [`OpenError::Database`] if the file is not a database. [`OpenError::Migration`] if a later version of the
    /// software wrote the file.
    pub async fn open(path: &Path, migrations: Migrations) -> Result<Self, OpenError> {
        let options = create(path)?;
        let mut connection = open_writer(&options).await.map_err(|error| not_opened(path, error))?;
        migrations.run(&mut connection).await?;
        Ok(Self::on(options, connection))
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
        let options = create(path)?;
        let mut connection = open_writer(&options).await.map_err(|error| not_opened(path, error))?;
        migrations.run_from_user_version(&mut connection).await?;
        Ok(Self::on(options, connection))
    }

    fn on(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        let writer = Writer {
            connection: Some(connection),
            left: WriterCondition::Ready,
            was_read_only: false,
            is_closed: false,
        };
        let readers = Readers::new(options.clone().pragma("query_only", "ON"));
        Self { options, writer: Arc::new(Mutex::new(writer)), readers }
    }
}

impl Readers {
    fn new(options: SqliteConnectOptions) -> Self {
        let connections = std::array::from_fn(|_| Mutex::default());
        Self { options, connections, free: FairPlaces::new(READERS), is_closed: AtomicBool::new(false) }
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let tenant = current_tenant();
        let waiting = tokio::time::timeout(ACQUIRE_TIMEOUT, self.free.take(&tenant));
        // Dropped after the connection guard.
        let _place = waiting.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(sqlx::Error::PoolClosed);
        }
        let free = self.connections.iter().find_map(|connection| connection.try_lock().ok());
        // No free connection although a place was free: the database was closed in the meantime.
        let mut place = free.ok_or(sqlx::Error::PoolClosed)?;
        let connection = match &mut *place {
            Some(connection) => connection,
            closed => closed.insert(self.options.connect().await?),
        };
        let rows = bind::<Sqlite>(sql, values).fetch_all(connection).await;
        // After an error the next read opens a new connection.
        if rows.is_err() {
            *place = None;
        }
        rows
    }

    /// Closes the connections that are not in use.
    async fn close_idle(&self) {
        for place in &self.connections {
            // Locked for a moment only: a reader that has a place expects a connection that is free.
            let idle = place.try_lock().ok().and_then(|mut place| place.take());
            if let Some(connection) = idle {
                // A reader has nothing to lose.
                let _ = connection.close().await;
            }
        }
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for place in &self.connections {
            if let Some(connection) = place.lock().await.take() {
                // A reader has nothing to lose.
                let _ = connection.close().await;
            }
        }
    }
}

/// Creates the file if needed and returns the connect options.
fn create(path: &Path) -> Result<SqliteConnectOptions, OpenError> {
    create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true)
        .statement_cache_capacity(STATEMENTS)
        .pragma("cache_size", CACHE)
        // The undo data of a multi-row insert is a few pages. On disk, more than 64 KiB would be a temporary file per
        // statement.
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", CHECKPOINT)
        .busy_timeout(BUSY_TIMEOUT);
    Ok(options)
}

/// Opens a connection that can write, as far as SQLite can tell before the first change.
async fn open_writer(options: &SqliteConnectOptions) -> sqlx::Result<SqliteConnection> {
    let mut connection = connect_first(options).await?;
    connection.execute(BEGIN).await?;
    connection.execute(ROLLBACK).await?;
    Ok(connection)
}

/// Connects to a file that may be new. If several processes switch a new file to write-ahead mode at the same time, SQLite
/// accepts one process and refuses the others without a wait. This function tries again for up to five seconds.
async fn connect_first(options: &SqliteConnectOptions) -> sqlx::Result<SqliteConnection> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match options.connect().await {
            Err(error) if code_of(&error) == Some(BUSY) && Instant::now() < until => sleep(BUSY_PAUSE).await,
            connected => return connected,
        }
    }
}

impl Writer {
    /// Makes the connection ready for the next transaction.
    async fn prepare(&mut self, options: &SqliteConnectOptions) -> sqlx::Result<()> {
        if self.is_closed {
            return Err(sqlx::Error::PoolClosed);
        }
        self.roll_back().await;
        if self.connection.is_none() {
            self.connection = Some(options.connect().await?);
        }
        Ok(())
    }

    /// Rolls back a transaction that was left open.
    async fn roll_back(&mut self) {
        let left = mem::replace(&mut self.left, WriterCondition::Ready);
        let Some(mut connection) = self.connection.take_if(|_| left != WriterCondition::Ready) else { return };
        // If a full disk ended the transaction, there is nothing to roll back, and the connection is replaced.
        if left == WriterCondition::Open && connection.execute(sqlx::query(ROLLBACK)).await.is_ok() {
            self.connection = Some(connection);
        } else {
            // The connection is dropped, whatever closing it returns.
            let _ = connection.close().await;
        }
    }
}

impl SqliteDatabase {
    /// Waits for the writer connection, for one transaction.
    async fn writer(&self) -> sqlx::Result<SqliteTransaction> {
        let waiting = tokio::time::timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.writer).lock_owned());
        let mut writer = waiting.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if mem::take(&mut writer.was_read_only) {
            self.readers.close_idle().await;
        }
        writer.prepare(&self.options).await?;
        // Set before `BEGIN`: if the caller is dropped during the statement, the transaction may be open.
        writer.left = WriterCondition::Open;
        Ok(SqliteTransaction { writer: Some(writer) })
    }
}

impl SqliteTransaction {
    fn writer(&mut self) -> sqlx::Result<&mut Writer> {
        self.writer.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    fn connection(&mut self) -> sqlx::Result<&mut SqliteConnection> {
        self.writer()?.connection.as_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Executes the text and returns the number of changed rows per statement.
    async fn changed(&mut self, text: Arc<str>, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        let query = bind::<Sqlite>(AssertSqlSafe(text), steps.iter().flat_map(|step| &step.values));
        let results = self.connection()?.fetch_many(query).try_filter_map(|result| ready(Ok(result.left())));
        results.map_ok(|result| result.rows_affected()).try_collect().await
    }

    /// Records the result of the `BEGIN` statement.
    fn begun<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        // Another process holds the lock, so no transaction was begun.
        if result.as_ref().err().and_then(code_of) == Some(BUSY) {
            self.writer()?.left = WriterCondition::Ready;
        }
        self.noted(result)
    }

    /// Passes the result on. If the error says that the file was read-only, the connection is marked, and replaced before the
    /// next transaction.
    fn noted<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if result.as_ref().err().and_then(code_of) == Some(READONLY) {
            let writer = self.writer()?;
            (writer.left, writer.was_read_only) = (WriterCondition::ReadOnly, true);
        }
        result
    }
}

/// Rolls back an open transaction at once, in the background. Otherwise other processes would have to wait until this process
/// begins its next transaction.
impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if let Some(mut writer) = self.writer.take_if(|writer| writer.left != WriterCondition::Ready)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { writer.roll_back().await });
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

const BUSY: i32 = 5;
const READONLY: i32 = 8;
const CANTOPEN: i32 = 14;

/// SQLite's primary result code: the low byte of the extended code.
fn code_of(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Converts the error of a file that was not opened. If SQLite may not write the file, the new error names the file, because
/// SQLite's own message does not name it.
fn not_opened(path: &Path, error: sqlx::Error) -> OpenError {
    match (code_of(&error), error.as_database_error()) {
        (Some(READONLY | CANTOPEN), Some(refused)) => {
            OpenError::File { path: path.to_owned(), source: std::io::Error::other(refused.message().to_owned()) }
        }
        _ => error.into(),
    }
}

impl Database for SqliteDatabase {
    type Row = SqliteRow;
    type Transaction = SqliteTransaction;
    const LOCK_SWEEP: Option<&'static str> = None;
    const HAS_ONE_WRITER: bool = true;

    async fn close(&self) {
        self.readers.close().await;
        let mut writer = self.writer.lock().await;
        writer.is_closed = true;
        if let Some(connection) = writer.connection.take() {
            // Committed changes are in the file or its log.
            let _ = connection.close().await;
        }
    }

    async fn begin(&self) -> sqlx::Result<Self::Transaction> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.writer().await?;
        let begun = transaction.connection()?.execute(sqlx::query(BEGIN)).await;
        transaction.begun(begun)?;
        Ok(transaction)
    }

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<TransactionStart<Self>> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.writer().await?;
        let changed = transaction.changed(text_of(steps, Form::Beginning, BEGIN), steps).await;
        match transaction.begun(changed) {
            Err(error) if code_of(&error) == Some(BUSY) => Err(error),
            // The first result belongs to the `BEGIN` statement.
            changed => Ok((transaction, changed.map(|mut changed| changed.split_off(1.min(changed.len()))))),
        }
    }

    async fn execute_alone(&self, steps: &[Step<'_>]) -> sqlx::Result<bool> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.writer().await?;
        let changed = transaction.changed(text_of(steps, Form::Transaction, BEGIN), steps).await;
        // The results end early, without an error, if the connection's thread has ended.
        if transaction.begun(changed)?.len() != statements_of_transaction(steps) {
            return Err(sqlx::Error::WorkerCrashed);
        }
        transaction.writer()?.left = WriterCondition::Ready;
        Ok(true)
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.writer().await?;
        // SQLite begins and commits a single statement itself, so nothing stays open.
        let is_single = !sql.starts_with(BEGIN);
        if is_single {
            transaction.writer()?.left = WriterCondition::Ready;
        }
        let found = bind::<Sqlite>(sql, values).fetch_all(transaction.connection()?).await;
        let found = if is_single { transaction.noted(found) } else { transaction.begun(found) }?;
        transaction.writer()?.left = WriterCondition::Ready;
        Ok(found)
    }

    async fn commit(mut transaction: Self::Transaction) -> sqlx::Result<()> {
        let _stage = enter(Stage::Store);
        // Not `execute`: that returns success even if the connection's thread has ended.
        let committed = transaction.connection()?.fetch_many(sqlx::query(COMMIT)).try_next().await;
        transaction.noted(committed)?.ok_or(sqlx::Error::WorkerCrashed)?;
        transaction.writer()?.left = WriterCondition::Ready;
        Ok(())
    }

    async fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        let _stage = enter(Stage::Store);
        let done = bind::<Sqlite>(sql, values).execute(transaction.connection()?).await;
        Ok(transaction.noted(done)?.rows_affected())
    }

    async fn execute_all(transaction: &mut Self::Transaction, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        let _stage = enter(Stage::Store);
        let changed = transaction.changed(text_of(steps, Form::Nameless, ""), steps).await;
        transaction.noted(changed)
    }

    async fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter(Stage::Store);
        let found = bind::<Sqlite>(sql, values).fetch_all(transaction.connection()?).await;
        transaction.noted(found)
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter(Stage::Store);
        self.readers.read(sql, values).await
    }
}

impl Row for SqliteRow {
    fn text(&self, column: usize) -> sqlx::Result<String> {
        sqlx::Row::try_get(self, column)
    }

    fn int(&self, column: usize) -> sqlx::Result<i64> {
        sqlx::Row::try_get(self, column)
    }

    fn maybe_int(&self, column: usize) -> sqlx::Result<Option<i64>> {
        sqlx::Row::try_get(self, column)
    }

    fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>> {
        sqlx::Row::try_get(self, column)
    }
}
