//! A connection to a file, on a thread of its own. A caller sends one piece of work and receives one answer, so that the work
//! costs two context switches, however many statements and rows it has.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{InterruptHandle, OpenFlags};
use tokio::sync::oneshot;

use super::error::failed;
use super::migrate::Unlisted;
use super::statements::{Batch, Outcome, Statements};
use crate::Migrations;

type Answer = sqlx::Result<Outcome>;

/// A connection to a file. Dropping it ends its thread after the work that was sent.
pub(super) struct Connection {
    work: mpsc::Sender<(Work, oneshot::Sender<Answer>)>,
    interrupt: InterruptHandle,
    /// Resolves when the thread has ended.
    ended: oneshot::Receiver<()>,
}

/// Interrupts the running statement when it is dropped, unless it contains `None`.
struct InterruptOnDrop<'c>(Option<&'c InterruptHandle>);

impl Drop for InterruptOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(interrupt) = self.0 {
            interrupt.interrupt();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, shown: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Work for the thread of a connection.
pub(super) enum Work {
    /// Runs migrations.
    Migrate(Migrations, Unlisted),
    /// Begins a transaction and executes the first statements in it.
    Begin(Batch),
    /// Executes statements in the open transaction.
    Continue(Batch),
    /// Commits the open transaction.
    Commit,
    /// Rolls back the open transaction. Does nothing if no transaction is open.
    RollBack,
    /// Executes statements as a transaction. Rolls it back if a number of changed rows is not the expected one.
    Transaction(Batch, Vec<u64>),
    /// Executes a query, a single statement, or a text that begins and commits a transaction.
    Alone(Batch),
}

// `IMMEDIATE` takes the write lock at the beginning. A transaction that begins by reading cannot wait for the lock
// later.
const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// Settings of each connection.
///
/// `cache_size` is the page cache of the connection: 16 MiB. A negative number counts KiB.
///
/// `temp_store`: the undo data of a multi-row insert is a few pages. On disk, more than 64 KiB would be a temporary file per
/// statement.
///
/// `wal_autocheckpoint` is the number of pages in the write-ahead log that triggers a checkpoint. A page that many tasks share
/// is in the log many times and is written to the file once.
const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;
    PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 4000;";
const READ_ONLY: &str = "PRAGMA query_only = ON";
/// Longest wait for the write lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before another attempt to open a locked file. SQLite waits for locks elsewhere, but not while it opens a new
/// file.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

impl Connection {
    /// Opens a connection to an existing file.
    pub(super) async fn open(file: Arc<Path>, access: Access) -> sqlx::Result<Self> {
        let (work, received) = mpsc::channel();
        let (opened, is_open) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("annex-sqlite".to_owned()).spawn(move || {
            // Dropped after the connection, also in a panic.
            let _end = end;
            serve(&file, access, opened, &received);
        })?;
        let interrupt = is_open.await.map_err(|_| sqlx::Error::WorkerCrashed)??;
        Ok(Self { work, interrupt, ended })
    }

    /// Sends work. If the receiver is dropped before the thread begins the work, only [`Work::RollBack`] is still done. The
    /// receiver gets no answer if the thread ends: after a panic, or because a transaction cannot be rolled back.
    pub(super) fn send(&self, work: Work) -> sqlx::Result<oneshot::Receiver<Answer>> {
        let (answer, answered) = oneshot::channel();
        self.work.send((work, answer)).map_err(|_| sqlx::Error::WorkerCrashed)?;
        Ok(answered)
    }

    /// Sends work and waits for its answer.
    pub(super) async fn run(&self, work: Work) -> Answer {
        self.send(work)?.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }

    /// Runs a query. If the caller drops the future, the query is interrupted.
    pub(super) async fn read(&self, query: Batch) -> Answer {
        let mut interrupt = InterruptOnDrop(Some(&self.interrupt));
        let answer = self.run(Work::Alone(query)).await;
        interrupt.0 = None;
        answer
    }

    /// Closes the connection after the work that was sent.
    pub(super) async fn close(self) {
        drop(self.work);
        // An error: the thread drops the sender when it ends.
        let _ = self.ended.await;
    }
}

/// Opens the connection and does the work that is sent, until nobody can send any. Ends early if a transaction cannot
/// be rolled back, because then only closing the connection ends that transaction.
fn serve(
    file: &Path,
    access: Access,
    opened: oneshot::Sender<sqlx::Result<InterruptHandle>>,
    received: &mpsc::Receiver<(Work, oneshot::Sender<Answer>)>,
) {
    let connection = match open(file, access) {
        Ok(connection) => connection,
        Err(error) => {
            // Sending fails if the caller was dropped.
            let _ = opened.send(Err(failed(error)));
            return;
        }
    };
    // Sending fails if the caller was dropped. Then no work is sent either.
    let _ = opened.send(Ok(connection.get_interrupt_handle()));
    let mut session = Session { connection: &connection, statements: Statements::of(&connection), is_broken: false };
    while let Ok((work, answer)) = received.recv() {
        if answer.is_closed() && !matches!(work, Work::RollBack) {
            continue;
        }
        let result = session.answer(work);
        if session.is_broken {
            return;
        }
        // Sending fails if the caller was dropped.
        let _ = answer.send(result);
    }
}

fn open(file: &Path, access: Access) -> rusqlite::Result<rusqlite::Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = rusqlite::Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let until = Instant::now() + BUSY_TIMEOUT;
    // If several processes switch a new file to write-ahead mode at the same time, SQLite accepts one process and refuses the
    // others without a wait.
    while let Err(error) = connection.execute_batch(SETTINGS) {
        if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) || Instant::now() >= until {
            return Err(error);
        }
        thread::sleep(BUSY_PAUSE);
    }
    if access == Access::Read {
        connection.execute_batch(READ_ONLY)?;
    }
    Ok(connection)
}

/// A connection on its thread.
struct Session<'c> {
    connection: &'c rusqlite::Connection,
    statements: Statements<'c>,
    /// True if a transaction could not be rolled back.
    is_broken: bool,
}

impl Session<'_> {
    fn answer(&mut self, work: Work) -> Answer {
        let outcome = match work {
            Work::Migrate(migrations, unlisted) => {
                return migrations.run(self.connection, unlisted).map(|()| Outcome::default());
            }
            Work::Begin(batch) => self.begin(&batch),
            Work::Continue(batch) => self.statements.execute(&batch),
            Work::Commit => self.statements.execute_fixed(COMMIT),
            Work::RollBack => self.ended(Ok(Outcome::default())),
            Work::Transaction(batch, expected) => {
                let outcome = self.transaction(&batch, &expected);
                self.ended(outcome)
            }
            Work::Alone(batch) => {
                let outcome = self.statements.execute(&batch);
                self.ended(outcome)
            }
        };
        outcome.map_err(failed)
    }

    fn begin(&mut self, batch: &Batch) -> rusqlite::Result<Outcome> {
        self.statements.execute_fixed(BEGIN)?;
        self.statements.execute(batch)
    }

    /// Runs the statements as a transaction. Leaves the transaction open if a number of changed rows is not the
    /// expected one.
    fn transaction(&mut self, batch: &Batch, expected: &[u64]) -> rusqlite::Result<Outcome> {
        let outcome = self.begin(batch)?;
        if outcome.changes == expected {
            self.statements.execute_fixed(COMMIT)?;
        }
        Ok(outcome)
    }

    /// Rolls back a transaction that is still open. Some errors, such as a full disk, have ended it already.
    fn ended(&mut self, outcome: rusqlite::Result<Outcome>) -> rusqlite::Result<Outcome> {
        if !self.connection.is_autocommit() {
            self.is_broken = self.statements.execute_fixed(ROLLBACK).is_err();
        }
        outcome
    }
}
