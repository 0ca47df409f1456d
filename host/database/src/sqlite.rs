//! One SQLite file.

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

use crate::database::{Begun, Database, Row, Step, Value, bind};
use crate::text::{Form, text_of};
use crate::{Migrations, OpenError};

/// A writer and some readers of one SQLite file, in write-ahead mode with `synchronous = NORMAL`.
///
/// Stored changes survive any end of the process, `kill -9` included. A power cut or a crash of the operating system
/// can take the latest changes with it, those since the last checkpoint (about 16 MB of log). The file is then whole
/// and consistent, as it was some changes before. Waiting for the disk at each change would close that gap, and cost
/// milliseconds per change.
///
/// Several processes can open one file on one machine. It must not be on a network file system.
#[derive(Debug)]
pub struct SqliteDatabase {
    options: SqliteConnectOptions,
    /// SQLite has one writer at a time, and here the others queue without polling for the lock.
    writer: Arc<Mutex<Writer>>,
    readers: Readers,
}

/// The connections that read. Not a pool of sqlx, which asks a connection whether it is well each time it comes back:
/// that costs as much as reading.
#[derive(Debug)]
struct Readers {
    options: SqliteConnectOptions,
    /// Each is opened when it is first needed.
    connections: [Mutex<Option<SqliteConnection>>; READERS],
    /// As many places as connections. Tenants that wait get them in turn.
    free: FairPlaces,
    is_closed: AtomicBool,
}

/// The connection that writes.
#[derive(Debug)]
struct Writer {
    /// `None` once the database is closed, and after a connection that is of no use until another is opened.
    connection: Option<SqliteConnection>,
    left: Left,
    is_closed: bool,
}

/// The condition in which the last transaction has left the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Ready for the next one.
    Ready,
    /// With a transaction that may be open.
    Open,
    /// It was refused a change, because it was opened when the file was read-only. SQLite keeps to that.
    ReadOnly,
}

/// A transaction of the writer.
#[derive(Debug)]
pub struct SqliteTransaction {
    /// `None` only while it is dropped.
    writer: Option<OwnedMutexGuard<Writer>>,
}

// Takes the lock at once: a transaction that begins with reading cannot wait for it later.
const BEGIN: &str = "BEGIN IMMEDIATE;";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

const READERS: usize = 4;
/// The number of texts with their statements that a connection keeps: a few kinds of changes, by how many go together.
const STATEMENTS: usize = 256;
/// The most of the file that a connection keeps in memory. A negative number counts KiB, a positive one pages.
const CACHE: &str = "-16384";
/// Pages of log after which it is brought into the file. Pages that many tasks share are in the log again and again, and
/// go into the file once.
const CHECKPOINT: &str = "4000";
/// The longest wait for the lock when another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before another attempt where SQLite does not wait for the lock.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// The longest wait for a connection when others of this process use them.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

impl SqliteDatabase {
    /// Opens the file, creates it if needed, readable for its owner only, and brings its tables up to date.
    ///
    /// # Errors
    /// [`OpenError::File`] when the file cannot be created or written, or no other file in its folder,
    /// [`OpenError::Database`] when it is not a database, [`OpenError::Migration`] when a later version of the software
    /// wrote it.
    pub async fn open(path: &Path, migrations: Migrations) -> Result<Self, OpenError> {
        let options = create(path)?;
        let mut connection = open_writer(&options).await.map_err(|error| not_opened(path, error))?;
        migrations.run(&mut connection).await?;
        Ok(Self::on(options, connection))
    }

    /// The same for a store whose files have their version in `PRAGMA user_version`, because they are older than its
    /// migrations. Migrations up to that version are not run, and the last one must set it to its own number, so that
    /// software from before the migrations still finds the version.
    ///
    /// # Errors
    /// As [`SqliteDatabase::open`]. When the version is after the last migration, the reason of [`OpenError::Migration`] is
    /// [`MigrateError::VersionMissing`](sqlx::migrate::MigrateError::VersionMissing) with that version.
    pub async fn open_with_user_version(path: &Path, migrations: Migrations) -> Result<Self, OpenError> {
        let options = create(path)?;
        let mut connection = open_writer(&options).await.map_err(|error| not_opened(path, error))?;
        migrations.run_from_user_version(&mut connection).await?;
        Ok(Self::on(options, connection))
    }

    fn on(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        let writer = Writer { connection: Some(connection), left: Left::Ready, is_closed: false };
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
        // Given back after the connection.
        let _place = waiting.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(sqlx::Error::PoolClosed);
        }
        let free = self.connections.iter().find_map(|connection| connection.try_lock().ok());
        // Where there is none, the database is closed meanwhile.
        let mut place = free.ok_or(sqlx::Error::PoolClosed)?;
        let connection = match &mut *place {
            Some(connection) => connection,
            closed => closed.insert(self.options.connect().await?),
        };
        let rows = bind::<Sqlite>(sql, values).fetch_all(connection).await;
        // After any failure the next read opens another connection.
        if rows.is_err() {
            *place = None;
        }
        rows
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for place in &self.connections {
            if let Some(connection) = place.lock().await.take() {
                // It has nothing to lose.
                let _ = connection.close().await;
            }
        }
    }
}

/// Creates the file if needed, and says how it is connected to.
fn create(path: &Path) -> Result<SqliteConnectOptions, OpenError> {
    create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true)
        .statement_cache_capacity(STATEMENTS)
        .pragma("cache_size", CACHE)
        // What a statement that inserts rows may have to undo is a few pages. On disk, more than 64 KiB of it would be a
        // file per statement.
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", CHECKPOINT)
        .busy_timeout(BUSY_TIMEOUT);
    Ok(options)
}

/// A connection that can write, as far as SQLite tells before the first change.
async fn open_writer(options: &SqliteConnectOptions) -> sqlx::Result<SqliteConnection> {
    let mut connection = connect_first(options).await?;
    connection.execute(BEGIN).await?;
    connection.execute(ROLLBACK).await?;
    Ok(connection)
}

/// Connects to a file that may be new. Where several switch a new file to write-ahead mode at once, SQLite refuses all but one
/// and does not wait.
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
    /// Makes it ready for another transaction.
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

    /// Ends what the last transaction has left.
    async fn roll_back(&mut self) {
        let left = mem::replace(&mut self.left, Left::Ready);
        let Some(mut connection) = self.connection.take_if(|_| left != Left::Ready) else { return };
        // Where a full disk has ended a transaction there is none to roll back, and the connection is not trusted.
        if left == Left::Open && connection.execute(sqlx::query(ROLLBACK)).await.is_ok() {
            self.connection = Some(connection);
        } else {
            // It is of no use, whatever it says to that.
            let _ = connection.close().await;
        }
    }
}

impl SqliteDatabase {
    /// The connection that writes, once it is free, for one transaction.
    async fn writer(&self) -> sqlx::Result<SqliteTransaction> {
        let waiting = tokio::time::timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.writer).lock_owned());
        let mut writer = waiting.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        writer.prepare(&self.options).await?;
        // Set before it begins: a caller that goes away meanwhile leaves a transaction that may be open.
        writer.left = Left::Open;
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

    /// The rows that each statement of the text has changed.
    async fn changed(&mut self, text: Arc<str>, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        let query = bind::<Sqlite>(AssertSqlSafe(text), steps.iter().flat_map(|step| &step.values));
        let results = self.connection()?.fetch_many(query).try_filter_map(|result| ready(Ok(result.left())));
        results.map_ok(|result| result.rows_affected()).try_collect().await
    }

    /// Notes what became of the statement that begins the transaction.
    fn begun<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        // Another process has the lock, so no transaction was begun, and there is none to roll back.
        if result.as_ref().err().and_then(code_of) == Some(BUSY) {
            self.writer()?.left = Left::Ready;
        }
        self.noted(result)
    }

    /// Notes if the connection was refused a change, so that another is opened for the next transaction.
    fn noted<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if result.as_ref().err().and_then(code_of) == Some(READONLY) {
            self.writer()?.left = Left::ReadOnly;
        }
        result
    }
}

/// Rolls back at once, so that other processes need not wait until the next transaction ends this one.
impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if let Some(mut writer) = self.writer.take_if(|writer| writer.left != Left::Ready)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { writer.roll_back().await });
        }
    }
}

/// Creates a file for its owner only: it will hold what clients sent, credentials among it. SQLite gives its companions
/// the same permissions.
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

/// SQLite's own code of an error: the low byte of the extended one.
fn code_of(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// The error of a file that was not opened. Where SQLite may not write the file or its companions, the error names the
/// file: SQLite's own words name none.
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
            // What is committed is in the file or its log.
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

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<Begun<Self>> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.writer().await?;
        let changed = transaction.changed(text_of(steps, Form::Beginning, BEGIN), steps).await;
        match transaction.begun(changed) {
            Err(error) if code_of(&error) == Some(BUSY) => Err(error),
            // The first result is that of the statement that begins.
            changed => Ok((transaction, changed.map(|mut changed| changed.split_off(1.min(changed.len()))))),
        }
    }

    /// Not in one trip: what is changed has to be counted before it is committed. [`Writer`](crate::Writer) needs it
    /// nowhere, because here it has all changes in transactions of several.
    async fn execute_alone(&self, _: &[Step<'_>]) -> sqlx::Result<bool> {
        Ok(false)
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.writer().await?;
        // One statement is begun and committed by SQLite itself, and leaves nothing open.
        transaction.writer()?.left = Left::Ready;
        Self::query(&mut transaction, sql, values).await
    }

    async fn commit(mut transaction: Self::Transaction) -> sqlx::Result<()> {
        let _stage = enter(Stage::Store);
        // Not `execute`, which takes it for done when the connection's thread has come to an end.
        let committed = transaction.connection()?.fetch_many(sqlx::query(COMMIT)).try_next().await;
        transaction.noted(committed)?.ok_or(sqlx::Error::WorkerCrashed)?;
        transaction.writer()?.left = Left::Ready;
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
