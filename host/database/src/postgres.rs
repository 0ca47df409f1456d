//! A PostgreSQL database.

mod pool;
mod state;

use std::slice;
use std::time::{Duration, Instant};

use annex_telemetry::{Stage, enter, enter_store};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgListener, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, Postgres, SqlSafeStr};

pub use self::state::PostgresState;

use self::pool::{FairPool, HeldConnection, in_time, is_lost};
use crate::database::{Database, Row, Step, TransactionStart, Value};
use crate::text::{one_statement, text_of};
use crate::{Migrations, OpenError, outlast_for};

/// A pool of connections to one PostgreSQL database. Clones share the pool.
#[derive(Clone, Debug)]
pub struct PostgresConnections {
    pool: FairPool,
}

/// A transaction and its connection.
pub struct PostgresTransaction(HeldConnection);

/// A PostgreSQL database, version 12 or later.
///
/// Any number of processes can write. The setting `synchronous_commit` of the server decides which changes a crash of
/// the server can lose. With the default setting, stored changes survive.
#[derive(Debug)]
pub struct PostgresDatabase {
    pool: FairPool,
}

/// Longest wait for a connection of the pool: until a connection is free, or until the database accepts a new connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of pings that measure the round trip. The shortest time counts, because the machine may be busy during a
/// ping.
const TRIPS: u32 = 4;
/// Time for which a failed read is retried over other connections.
const READ_RETRY_TIME: Duration = Duration::from_secs(3);

impl PostgresConnections {
    /// Creates a pool of at most `most` connections. Connections are opened when needed, so this does not contact the
    /// database.
    ///
    /// `url` is `postgres://user:password@host:port/database`, with parameters such as `sslmode=verify-full`. TLS is
    /// rustls with ring and the certificate authorities of Mozilla, or `sslrootcert`. Parts missing in the URL come
    /// from the `PG…` environment variables.
    ///
    /// # Errors
    /// [`OpenError::Database`] if the URL is invalid. The error does not contain the URL.
    pub fn new(url: &str, most: u32) -> Result<Self, OpenError> {
        let options = url.parse::<PgConnectOptions>()?.application_name("annex");
        Ok(Self { pool: FairPool::new(options, most, ACQUIRE_TIMEOUT) })
    }

    /// Measures the round-trip time to the database: the shortest of four pings.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn round_trip(&self) -> sqlx::Result<Duration> {
        let mut connection = self.connect().await?;
        let mut least = Duration::MAX;
        for _ in 0..TRIPS {
            let asked = Instant::now();
            in_time(connection.ping()).await?;
            least = least.min(asked.elapsed());
        }
        connection.close().await?;
        Ok(least)
    }

    /// Opens a connection outside of the pool. The pool would retry until its timeout and then hide the cause.
    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, PgConnection::connect_with(self.pool.options())).await;
        connected.map_err(|_| sqlx::Error::PoolTimedOut)?
    }

    /// Opens a connection that receives notifications on `channel` from now on. After the connection is lost, it
    /// receives nothing more.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn listen(&self, channel: &str) -> sqlx::Result<PgListener> {
        // The pool of the listener would hide why it cannot connect.
        self.connect().await?.close().await?;
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE_TIMEOUT);
        let pool = pool.idle_timeout(None).max_lifetime(None).connect_lazy_with(self.pool.options().clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        listener.eager_reconnect(false);
        listener.listen(channel).await?;
        Ok(listener)
    }

    /// A database over a separate pool of at most `connections` connections, for work that must not queue behind
    /// requests. Waiting for a connection takes at most `timeout`. The tables must exist already.
    #[must_use]
    pub fn beside(&self, connections: u32, timeout: Duration) -> PostgresDatabase {
        PostgresDatabase { pool: FairPool::lasting(self.pool.options().clone(), connections, timeout) }
    }
}

impl PostgresDatabase {
    /// Opens a pool of at most `connections` connections and runs the migrations. [`PostgresConnections::new`] describes `url`.
    ///
    /// # Errors
    /// The errors of [`PostgresConnections::new`] and [`Self::open`].
    pub async fn connect(url: &str, connections: u32, migrations: Migrations) -> Result<Self, OpenError> {
        Self::open(&PostgresConnections::new(url, connections)?, migrations).await
    }

    /// Runs the migrations on a shared pool. Closing the database closes the pool for everyone who shares it.
    ///
    /// # Errors
    /// [`OpenError::Database`] if the database cannot be reached, [`OpenError::Migration`] if a version later than
    /// the next one wrote the tables. Neither contains the URL.
    pub async fn open(connections: &PostgresConnections, migrations: Migrations) -> Result<Self, OpenError> {
        let mut connection = connections.connect().await?;
        migrations.run_beside_the_next(&mut connection).await?;
        connection.close().await?;
        Ok(Self { pool: connections.pool.clone() })
    }

    /// This database over a separate pool of at most `connections` connections, for work that must not queue behind
    /// requests. Waiting for a connection takes at most `timeout`.
    #[must_use]
    pub fn beside(&self, connections: u32, timeout: Duration) -> Self {
        Self { pool: FairPool::lasting(self.pool.options().clone(), connections, timeout) }
    }

    async fn rows(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let mut held = self.pool.hold().await?;
        let result = in_time(bind(sql, values).fetch_all(held.connection()?)).await;
        held.ended(result)
    }
}

/// Builds a query with its parameters bound.
fn bind<'s>(
    sql: impl SqlSafeStr,
    values: impl IntoIterator<Item = &'s Value<'s>>,
) -> Query<'static, Postgres, PgArguments> {
    values.into_iter().fold(sqlx::query(sql), |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::MaybeText(text) => query.bind(text),
        Value::Int(number) => query.bind(number),
        Value::MaybeInt(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

impl Database for PostgresDatabase {
    type Row = PgRow;
    type Transaction = PostgresTransaction;
    // An arbitrary number that no other lock uses.
    const LOCK_SWEEP: Option<&'static str> = Some("SELECT pg_advisory_xact_lock(4711240513)");
    const HAS_ONE_WRITER: bool = false;
    const SYSTEM: &'static str = "postgresql";

    async fn close(&self) {
        self.pool.close().await;
    }

    async fn begin(&self) -> sqlx::Result<Self::Transaction> {
        let _stage = enter_store(Self::SYSTEM, "begin");
        let mut held = self.pool.hold().await?;
        held.begin().await?;
        Ok(PostgresTransaction(held))
    }

    async fn commit(PostgresTransaction(held): Self::Transaction) -> sqlx::Result<()> {
        let _stage = enter_store(Self::SYSTEM, "commit");
        held.commit().await
    }

    async fn execute(
        PostgresTransaction(held): &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        let _stage = enter_store(Self::SYSTEM, "write");
        let result = in_time(bind(sql, values).execute(held.connection()?)).await;
        Ok(held.ended(result)?.rows_affected())
    }

    async fn execute_all(
        PostgresTransaction(held): &mut Self::Transaction,
        steps: &[Step<'_>],
    ) -> sqlx::Result<Vec<u64>> {
        let _stage = enter_store(Self::SYSTEM, "write");
        let mut changed = Vec::with_capacity(steps.len());
        for step in steps {
            let query = bind(AssertSqlSafe(text_of(slice::from_ref(step))), &step.values);
            let result = in_time(query.execute(held.connection()?)).await;
            changed.push(held.ended(result)?.rows_affected());
            if changed.last() != Some(&step.changes) {
                break;
            }
        }
        Ok(changed)
    }

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<TransactionStart<Self>> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.begin().await?;
        let changed = Self::execute_all(&mut transaction, steps).await;
        Ok((transaction, changed))
    }

    /// Sends a single statement without `BEGIN` and `COMMIT`, because PostgreSQL runs such a statement as a transaction.
    async fn execute_alone(&self, steps: &[Step<'_>]) -> sqlx::Result<bool> {
        let _stage = enter_store(Self::SYSTEM, "write");
        if let [step] = steps {
            let query = bind(AssertSqlSafe(text_of(steps)), &step.values);
            // If only some of several rows changed, the statement would have to be undone.
            if step.changes != 1 {
                return Ok(false);
            }
            let mut held = self.pool.hold().await?;
            let result = in_time(query.execute(held.connection()?)).await;
            return Ok(held.ended(result)?.rows_affected() == 1);
        }
        let Some((text, values)) = one_statement(steps) else { return Ok(false) };
        let query = bind(AssertSqlSafe(text), &values);
        let mut held = self.pool.hold().await?;
        let result = in_time(query.fetch_one(held.connection()?)).await;
        Ok(held.ended(result)?.int(0)? == 1)
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let _stage = enter_store(Self::SYSTEM, "write");
        self.rows(sql, values).await
    }

    async fn query(
        PostgresTransaction(held): &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<PgRow>> {
        let _stage = enter_store(Self::SYSTEM, "read");
        let result = in_time(bind(sql, values).fetch_all(held.connection()?)).await;
        held.ended(result)
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let _stage = enter_store(Self::SYSTEM, "read");
        outlast_for(READ_RETRY_TIME, is_lost, || self.rows(sql, values)).await
    }
}

impl Row for PgRow {
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
