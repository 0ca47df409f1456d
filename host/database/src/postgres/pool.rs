//! A connection pool that is fair between tenants.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use annex_fairness::{FairPlaces, Place, current_tenant};
use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError, PgSeverity};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::statement_timeout::statement_timeout;
use crate::{may_pass, outlast_for};

/// A connection pool. Tenants that wait for a connection are served round robin. Clones share the pool.
#[derive(Clone)]
pub(super) struct FairPool(Arc<SharedPool>);

struct SharedPool {
    pool: Pool<Connector>,
    connections: u32,
    /// One place per connection.
    places: FairPlaces,
    swept: Mutex<Instant>,
}

/// Opens connections and checks idle ones before they are used again.
#[derive(Debug)]
struct Connector {
    options: PgConnectOptions,
    timeout: Duration,
    /// True if connections are never closed for being idle or old.
    is_lasting: bool,
    lost: Moment,
    /// Time at which an idle connection was last found dead.
    dead: Moment,
}

/// Time of the last failure of one kind. Connections that have been idle since before that time may be lost as well.
#[derive(Debug, Default)]
struct Moment(Mutex<Option<Instant>>);

/// A connection in use. Dropping it returns it to the pool.
pub(super) struct HeldConnection {
    /// `None` after the connection was lost.
    connection: Option<Object<Connector>>,
    /// True while a statement runs.
    is_busy: bool,
    is_in_transaction: bool,
    shared: Arc<SharedPool>,
    // Dropped last, so that the connection is back in the pool before another waiter gets the place.
    place: Option<Place>,
}

/// Longest wait for a ping on a connection that was idle.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of polling while [`FairPool::close`] waits for connections in use.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A connection that was used within this time is not pinged before it is used again.
const IDLE_TRUST: Duration = Duration::from_secs(1);
/// Connections idle for longer are closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval between two searches for idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Connections older than this are replaced, because the memory that the server keeps per connection grows.
const MAX_AGE: Duration = Duration::from_secs(1_800);

/// Begins a transaction. PostgreSQL ends the transaction if this process is silent for four seconds. A lease lasts
/// five: the locks of a stalled process are released before another process takes its work over.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '4s'";

impl FairPool {
    /// A pool of at most `connections` connections, opened when needed. Waiting for one takes at most `timeout`.
    pub(super) fn new(options: PgConnectOptions, connections: u32, timeout: Duration) -> Self {
        Self::of(
            Connector { options, timeout, is_lasting: false, lost: Moment::default(), dead: Moment::default() },
            connections,
        )
    }

    /// Like [`new`](Self::new), but idle connections stay open: if other programs use up the connection limit of the
    /// server, a new connection could not be opened.
    pub(super) fn lasting(options: PgConnectOptions, connections: u32, timeout: Duration) -> Self {
        Self::of(
            Connector { options, timeout, is_lasting: true, lost: Moment::default(), dead: Moment::default() },
            connections,
        )
    }

    fn of(connector: Connector, connections: u32) -> Self {
        let most = usize::try_from(connections).unwrap_or(usize::MAX);
        // LIFO reuses the most recent connection, so that the others become idle and are closed.
        let pool = Pool::builder(connector).max_size(most).queue_mode(QueueMode::Lifo).build();
        let pool = pool.expect("a pool without time limits of its own needs no runtime");
        let places = FairPlaces::new(most);
        Self(Arc::new(SharedPool { pool, connections, places, swept: Mutex::new(Instant::now()) }))
    }

    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.0.pool.manager().options
    }

    /// Waits for a connection.
    pub(super) async fn hold(&self) -> sqlx::Result<HeldConnection> {
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
            Ok(HeldConnection { connection, is_busy: false, is_in_transaction: false, shared, place: Some(place) })
        };
        let held = timeout(shared.pool.manager().timeout, holding).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        shared.noted(held)
    }

    /// Closes the pool. Idle connections are closed at once. Connections in use are closed when they are returned.
    /// Waits until all are closed, at most as long as for acquiring a connection.
    pub(super) async fn close(&self) {
        let SharedPool { pool, connections, places, .. } = &*self.0;
        let idle = pool.retain(|_, _| false).removed;
        pool.close();
        for connection in idle {
            // The connection is dropped, whether or not the database answered.
            let _ = timeout(PING_TIMEOUT, connection.close()).await;
        }
        let used = async {
            while places.free() < usize::try_from(*connections).unwrap_or(usize::MAX) {
                sleep(POLL_INTERVAL).await;
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

impl SharedPool {
    /// Closes idle connections, at most once per [`SWEEP_INTERVAL`].
    fn sweep(&self) {
        if self.pool.manager().is_lasting {
            return;
        }
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.elapsed() > SWEEP_INTERVAL {
            *swept = Instant::now();
            drop(self.pool.retain(|_, metrics| metrics.last_used() < IDLE_TIMEOUT));
        }
    }

    /// Records the time if the error means that a connection is lost.
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

    /// Opens a connection. Retries while the database is starting.
    async fn create(&self) -> sqlx::Result<PgConnection> {
        let starts = |error: &sqlx::Error| match error {
            sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
            _ => false,
        };
        // Boxed because the future is large and rarely needed.
        Box::pin(outlast_for(self.timeout, starts, || PgConnection::connect_with(&self.options))).await
    }

    async fn recycle(&self, connection: &mut PgConnection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if !self.is_lasting && metrics.age() > MAX_AGE {
            return Err(RecycleError::message("the connection is old"));
        }
        let idle = metrics.last_used();
        if self.dead.is_since(idle) {
            return Err(RecycleError::message("a connection of the same age is dead"));
        }
        // Pinging a connection before every use would cost as much as most statements.
        if idle >= IDLE_TRUST || self.lost.is_since(idle) {
            let limit = PING_TIMEOUT.min(self.timeout / 4);
            let well = timeout(limit, connection.ping()).await.unwrap_or_else(|_| Err(silent(limit)));
            well.inspect_err(|_| self.dead.is_now())?;
        }
        Ok(())
    }
}

impl Moment {
    fn is_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// True if the moment lies within the last `time`.
    fn is_since(&self, time: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|moment| moment.elapsed() <= time)
    }
}

impl HeldConnection {
    /// The connection, for one statement. Run the statement with [`in_time`] and pass its result to
    /// [`ended`](Self::ended).
    pub(super) fn connection(&mut self) -> sqlx::Result<&mut PgConnection> {
        self.is_busy = true;
        self.connection.as_deref_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }

    /// Records the result of a statement. Closes the connection if the error may have broken it.
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

/// Returns the connection to the pool. Waits in the background for a running statement first, and rolls back an open
/// transaction.
impl Drop for HeldConnection {
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
        // A running statement keeps its place: closing a connection does not end its statement in the database.
        let is_kept = is_busy && !self.shared.pool.manager().is_lasting;
        let limit = if is_kept { statement_timeout() } else { PING_TIMEOUT };
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

/// Waits for the running statement and rolls back an open transaction.
async fn settle(connection: &mut PgConnection, is_in_transaction: bool) -> sqlx::Result<()> {
    let mut attempt = async || {
        if is_in_transaction {
            return sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.map(drop);
        }
        connection.ping().await
    };
    match attempt().await {
        // The first error may be that of the statement that was running.
        Err(error) if !ends_connection(&error) => attempt().await,
        settled => settled,
    }
}

/// Runs a statement with [`statement_timeout`].
pub(super) async fn in_time<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let limit = statement_timeout();
    timeout(limit, statement).await.unwrap_or_else(|_| Err(silent(limit)))
}

fn silent(time: Duration) -> sqlx::Error {
    let reason = format!("the database has not answered for {} s", time.as_secs_f32());
    io::Error::new(io::ErrorKind::TimedOut, reason).into()
}

/// True if a connection must be closed after this error.
fn ends_connection(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return true };
    let severity = error.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
}

/// True if the error means that the connection is lost. Other connections may then be lost too. False for a timeout of
/// the pool, which does not concern a connection.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    may_pass(error) && !matches!(error, sqlx::Error::PoolTimedOut) && ends_connection(error)
}
