//! The connections of one pool, and who has one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use annex_fairness::{FairPlaces, Place, current_tenant};
use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError, PgSeverity};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::patience::patience;
use crate::{may_pass, outlast_for};

/// Connections that tenants which wait get in turn. Clones share them.
#[derive(Clone)]
pub(super) struct FairPool(Arc<Shared>);

struct Shared {
    pool: Pool<Connector>,
    connections: u32,
    /// One for each connection.
    places: FairPlaces,
    swept: Mutex<Instant>,
}

/// How connections are made, and which of those that are there are still good.
#[derive(Debug)]
struct Connector {
    options: PgConnectOptions,
    timeout: Duration,
    /// True where connections are kept for good.
    is_lasting: bool,
    lost: Moment,
    /// When an idle one was found to be dead.
    dead: Moment,
}

/// The moment when a connection was found to be lost: the others that have not been used since may be lost as well.
#[derive(Debug, Default)]
struct Moment(Mutex<Option<Instant>>);

/// A connection that is the caller's until this is dropped.
pub(super) struct Held {
    /// `None` once it is lost.
    connection: Option<Object<Connector>>,
    /// True while a statement is under way.
    is_busy: bool,
    is_in_transaction: bool,
    shared: Arc<Shared>,
    // Dropped last, so that the connection is back in the pool when another one gets the place.
    place: Option<Place>,
}

/// The longest wait for a connection that has done nothing for a while to say that it is there.
const PING_PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks whether the last one is back.
const LOOK: Duration = Duration::from_millis(5);
/// A connection that was used so recently is taken to be well.
const IDLE_TRUST: Duration = Duration::from_secs(1);
/// A connection that nobody has needed for so long is closed.
const IDLE: Duration = Duration::from_secs(600);
/// The time between two looks for such ones.
const SWEEP: Duration = Duration::from_secs(60);
/// A connection of this age is replaced: what the server keeps for one grows.
const OLD: Duration = Duration::from_secs(1_800);

/// Begins a transaction. The server ends it where this process says nothing for as long as a lease lasts, so that what a process
/// that stands still has locked is free once its work is anybody's.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '4s'";

impl FairPool {
    /// At most `connections` of them, which nobody waits for longer than `timeout`. They are made when they are needed.
    pub(super) fn new(options: PgConnectOptions, connections: u32, timeout: Duration) -> Self {
        Self::of(
            Connector { options, timeout, is_lasting: false, lost: Moment::default(), dead: Moment::default() },
            connections,
        )
    }

    /// As [`new`](Self::new), but the connections are kept for good: where others have taken all that the database gives, a new
    /// one would not be had.
    pub(super) fn lasting(options: PgConnectOptions, connections: u32, timeout: Duration) -> Self {
        Self::of(
            Connector { options, timeout, is_lasting: true, lost: Moment::default(), dead: Moment::default() },
            connections,
        )
    }

    fn of(connector: Connector, connections: u32) -> Self {
        let most = usize::try_from(connections).unwrap_or(usize::MAX);
        // The one that was used last, so that the others can be seen not to be needed.
        let pool = Pool::builder(connector).max_size(most).queue_mode(QueueMode::Lifo).build();
        let pool = pool.expect("a pool without time limits of its own needs no runtime");
        let places = FairPlaces::new(most);
        Self(Arc::new(Shared { pool, connections, places, swept: Mutex::new(Instant::now()) }))
    }

    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.0.pool.manager().options
    }

    /// Waits for a connection.
    pub(super) async fn hold(&self) -> sqlx::Result<Held> {
        let shared = &self.0;
        let holding = async {
            let place = match shared.places.try_take() {
                Some(place) => place,
                None => shared.places.take(&current_tenant()).await,
            };
            shared.sweep();
            let connection = shared.pool.get().await.map_err(|error| match error {
                PoolError::Backend(error) => error,
                PoolError::Closed => sqlx::Error::PoolClosed,
                _ => sqlx::Error::PoolTimedOut,
            })?;
            let shared = Arc::clone(shared);
            let connection = Some(connection);
            Ok(Held { connection, is_busy: false, is_in_transaction: false, shared, place: Some(place) })
        };
        let held = timeout(shared.pool.manager().timeout, holding).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        shared.noted(held)
    }

    /// Closes all connections: nobody gets one any more, and one that is used is closed when it comes back. Waits for those, though
    /// not for longer than for one.
    pub(super) async fn close(&self) {
        let Shared { pool, connections, places, .. } = &*self.0;
        let idle = pool.retain(|_, _| false).removed;
        pool.close();
        for connection in idle {
            // It is gone, whatever the database says.
            let _ = timeout(PING_PATIENCE, connection.close()).await;
        }
        let used = async {
            while places.free() < usize::try_from(*connections).unwrap_or(usize::MAX) {
                sleep(LOOK).await;
            }
        };
        let _ = timeout(pool.manager().timeout, used).await;
    }
}

impl fmt::Debug for FairPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FairPool").field("connections", &self.0.connections).finish_non_exhaustive()
    }
}

impl Shared {
    /// Closes the connections that nobody has needed for long.
    fn sweep(&self) {
        if self.pool.manager().is_lasting {
            return;
        }
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.elapsed() > SWEEP {
            *swept = Instant::now();
            drop(self.pool.retain(|_, metrics| metrics.last_used() < IDLE));
        }
    }

    /// Takes note of an error that says that a connection is lost.
    fn noted<T>(&self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if result.as_ref().is_err_and(is_lost) {
            self.pool.manager().lost.is_now();
        }
        result
    }
}

impl Manager for Connector {
    type Type = PgConnection;
    type Error = sqlx::Error;

    /// Waits for a database that starts.
    async fn create(&self) -> sqlx::Result<PgConnection> {
        let starts = |error: &sqlx::Error| match error {
            sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
            _ => false,
        };
        // Boxed, because it is large, and seldom part of what a statement waits for.
        Box::pin(outlast_for(self.timeout, starts, || PgConnection::connect_with(&self.options))).await
    }

    async fn recycle(&self, connection: &mut PgConnection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if !self.is_lasting && metrics.age() > OLD {
            return Err(RecycleError::message("it is old"));
        }
        let idle = metrics.last_used();
        if self.dead.is_since(idle) {
            return Err(RecycleError::message("one of its time is dead"));
        }
        // Asking each time whether a connection is well would cost as much as most statements do.
        if idle >= IDLE_TRUST || self.lost.is_since(idle) {
            let patience = PING_PATIENCE.min(self.timeout / 4);
            let well = timeout(patience, connection.ping()).await.unwrap_or_else(|_| Err(silent(patience)));
            well.inspect_err(|_| self.dead.is_now())?;
        }
        Ok(())
    }
}

impl Moment {
    fn is_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// True if it was within this time.
    fn is_since(&self, time: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|moment| moment.elapsed() <= time)
    }
}

impl Held {
    /// The connection, for one statement. [`in_time`] waits for it, and [`ended`](Self::ended) is told what came of it.
    pub(super) fn connection(&mut self) -> sqlx::Result<&mut PgConnection> {
        self.is_busy = true;
        self.connection.as_deref_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }

    /// Takes note of what came of a statement. A connection that may not be well any more is closed.
    pub(super) fn ended<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if result.as_ref().is_err_and(ends_connection) {
            self.connection.take().map(Object::take);
        } else {
            self.is_busy = false;
        }
        self.shared.noted(result)
    }

    pub(super) async fn begin(&mut self) -> sqlx::Result<()> {
        self.is_in_transaction = true;
        self.simple(BEGIN).await
    }

    pub(super) async fn commit(mut self) -> sqlx::Result<()> {
        self.simple("COMMIT").await?;
        self.is_in_transaction = false;
        Ok(())
    }

    async fn simple(&mut self, sql: &'static str) -> sqlx::Result<()> {
        let result = in_time(sqlx::raw_sql(sql).execute(self.connection()?)).await;
        self.ended(result).map(drop)
    }
}

/// Gives the connection back. What is under way on it ends before, and a transaction that was not committed is rolled back.
impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let Self { is_busy, is_in_transaction, .. } = *self;
        if !is_busy && !is_in_transaction {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            drop(Object::take(connection));
            return;
        };
        let place = self.place.take();
        // A statement that the database is busy with keeps its place: what is closed is not ended there.
        let is_kept = is_busy && !self.shared.pool.manager().is_lasting;
        let limit = if is_kept { patience() } else { PING_PATIENCE };
        runtime.spawn(async move {
            if matches!(timeout(limit, settle(&mut connection, is_in_transaction)).await, Ok(Ok(()))) {
                drop(connection);
            } else {
                drop(Object::take(connection));
            }
            drop(place);
        });
    }
}

/// Waits for what is under way, and rolls a transaction back.
async fn settle(connection: &mut PgConnection, is_in_transaction: bool) -> sqlx::Result<()> {
    let mut attempt = async || {
        if is_in_transaction {
            return sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.map(drop);
        }
        connection.ping().await
    };
    match attempt().await {
        // That of the statement that was under way.
        Err(error) if !ends_connection(&error) => attempt().await,
        settled => settled,
    }
}

/// Waits for a statement for as long as one may take.
pub(super) async fn in_time<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let patience = patience();
    timeout(patience, statement).await.unwrap_or_else(|_| Err(silent(patience)))
}

fn silent(time: Duration) -> sqlx::Error {
    let reason = format!("the database has not answered for {} s", time.as_secs_f32());
    io::Error::new(io::ErrorKind::TimedOut, reason).into()
}

/// True if a connection on which this has happened is not to be used any more.
fn ends_connection(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return true };
    let severity = error.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
}

/// True if the error is that of a connection, so that others may be lost, too. Waiting for one took its time already.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    may_pass(error) && !matches!(error, sqlx::Error::PoolTimedOut) && ends_connection(error)
}
