//! One PostgreSQL database.

mod pool;
mod state;

use std::slice;
use std::time::{Duration, Instant};

use annex_telemetry::{Stage, enter};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, Postgres};

pub use self::state::PostgresState;

use self::pool::{FairPool, Held, in_time, is_lost};
use crate::database::{Begun, Database, Row, Step, Value, bind};
use crate::text::{Form, one_statement, text_of};
use crate::{Migrations, OpenError, outlast_for};

/// The connections to one PostgreSQL database, for all that is kept in it. Clones share them.
#[derive(Clone, Debug)]
pub struct PostgresConnections {
    pool: FairPool,
}

/// A transaction, with its connection.
pub struct PostgresTransaction(Held);

/// One PostgreSQL database, version 12 or later.
///
/// Any number of processes can write. What a crash of the database server can lose is a matter of its
/// `synchronous_commit`; with the default nothing that was stored.
#[derive(Debug)]
pub struct PostgresDatabase {
    pool: FairPool,
}

/// The longest wait for a connection, be it for others to finish or for the database to answer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Round trips of which the least counts: the machine may be busy during some of them.
const TRIPS: u32 = 4;
/// The longest time after which what is only read is read again over another connection.
const READ_PATIENCE: Duration = Duration::from_secs(3);

impl PostgresConnections {
    /// At most `most` of them at once. They are made when they are needed, so that this says nothing of the database.
    ///
    /// `url` is `postgres://user:password@host:port/database`, with parameters such as `sslmode=verify-full`. TLS is
    /// rustls with ring and the certificate authorities of Mozilla, or `sslrootcert`. What the URL leaves out comes from
    /// the `PG…` environment variables.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the URL is none. It does not repeat the URL.
    pub fn new(url: &str, most: u32) -> Result<Self, OpenError> {
        let options = url.parse::<PgConnectOptions>()?.application_name("annex");
        Ok(Self { pool: FairPool::new(options, most, ACQUIRE_TIMEOUT) })
    }

    /// The time that a question to the database takes which it answers at once: the least of a few.
    ///
    /// # Errors
    /// When the database is not reached.
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

    /// A connection that is not from the pool, which would try again until its time is up and then hide the cause.
    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, PgConnection::connect_with(self.pool.options())).await;
        connected.map_err(|_| sqlx::Error::PoolTimedOut)?
    }

    /// A connection of its own that hears what is notified on `channel` from now on. Once it is lost it hears nothing more.
    ///
    /// # Errors
    /// When the database is not reached.
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

    /// The database over at most `connections` others, for what must not wait for those of the requests. Waiting for one of
    /// them takes `timeout` at most. The tables are taken to be there.
    #[must_use]
    pub fn beside(&self, connections: u32, timeout: Duration) -> PostgresDatabase {
        PostgresDatabase { pool: FairPool::lasting(self.pool.options().clone(), connections, timeout) }
    }
}

impl PostgresDatabase {
    /// Connects with at most `connections` connections of its own and brings the tables up to date; `url` is described at
    /// [`PostgresConnections::new`].
    ///
    /// # Errors
    /// As [`PostgresConnections::new`] and [`Self::open`].
    pub async fn connect(url: &str, connections: u32, migrations: Migrations) -> Result<Self, OpenError> {
        Self::open(&PostgresConnections::new(url, connections)?, migrations).await
    }

    /// Brings the tables up to date. Whoever closes the database closes the connections for all who share them.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the database is not reached, [`OpenError::Migration`] when a version of the software
    /// later than the next one wrote the tables. Neither repeats the URL.
    pub async fn open(connections: &PostgresConnections, migrations: Migrations) -> Result<Self, OpenError> {
        let mut connection = connections.connect().await?;
        migrations.run_beside_the_next(&mut connection).await?;
        connection.close().await?;
        Ok(Self { pool: connections.pool.clone() })
    }

    /// The same database over at most `connections` connections of its own, for what must not wait for the others.
    /// Waiting for one of them takes `timeout` at most.
    #[must_use]
    pub fn beside(&self, connections: u32, timeout: Duration) -> Self {
        Self { pool: FairPool::lasting(self.pool.options().clone(), connections, timeout) }
    }

    async fn rows(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let mut held = self.pool.hold().await?;
        let result = in_time(bind::<Postgres>(sql, values).fetch_all(held.connection()?)).await;
        held.ended(result)
    }
}

impl Database for PostgresDatabase {
    type Row = PgRow;
    type Transaction = PostgresTransaction;
    // The number is an arbitrary one that nothing else locks.
    const LOCK_SWEEP: Option<&'static str> = Some("SELECT pg_advisory_xact_lock(4711240513)");
    const HAS_ONE_WRITER: bool = false;

    async fn close(&self) {
        self.pool.close().await;
    }

    async fn begin(&self) -> sqlx::Result<Self::Transaction> {
        let _stage = enter(Stage::Store);
        let mut held = self.pool.hold().await?;
        held.begin().await?;
        Ok(PostgresTransaction(held))
    }

    async fn commit(PostgresTransaction(held): Self::Transaction) -> sqlx::Result<()> {
        let _stage = enter(Stage::Store);
        held.commit().await
    }

    async fn execute(
        PostgresTransaction(held): &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        let _stage = enter(Stage::Store);
        let result = in_time(bind::<Postgres>(sql, values).execute(held.connection()?)).await;
        Ok(held.ended(result)?.rows_affected())
    }

    async fn execute_all(
        PostgresTransaction(held): &mut Self::Transaction,
        steps: &[Step<'_>],
    ) -> sqlx::Result<Vec<u64>> {
        let _stage = enter(Stage::Store);
        let mut changed = Vec::with_capacity(steps.len());
        for step in steps {
            let query =
                bind::<Postgres>(AssertSqlSafe(text_of(slice::from_ref(step), Form::Numbered, "")), &step.values);
            let result = in_time(query.execute(held.connection()?)).await;
            changed.push(held.ended(result)?.rows_affected());
            if changed.last() != Some(&step.changes) {
                break;
            }
        }
        Ok(changed)
    }

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<Begun<Self>> {
        let _stage = enter(Stage::Store);
        let mut transaction = self.begin().await?;
        let changed = Self::execute_all(&mut transaction, steps).await;
        Ok((transaction, changed))
    }

    /// A statement by itself is a transaction here, which the database begins and commits without being told to.
    async fn execute_alone(&self, steps: &[Step<'_>]) -> sqlx::Result<bool> {
        let _stage = enter(Stage::Store);
        if let [step] = steps {
            let query = bind::<Postgres>(AssertSqlSafe(text_of(steps, Form::Numbered, "")), &step.values);
            // One that changed some of several rows would have to be taken back.
            if step.changes != 1 {
                return Ok(false);
            }
            let mut held = self.pool.hold().await?;
            let result = in_time(query.execute(held.connection()?)).await;
            return Ok(held.ended(result)?.rows_affected() == 1);
        }
        let Some((text, values)) = one_statement(steps) else { return Ok(false) };
        let query = bind::<Postgres>(AssertSqlSafe(text), &values);
        let mut held = self.pool.hold().await?;
        let result = in_time(query.fetch_one(held.connection()?)).await;
        Ok(held.ended(result)?.int(0)? == 1)
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let _stage = enter(Stage::Store);
        self.rows(sql, values).await
    }

    async fn query(
        PostgresTransaction(held): &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<PgRow>> {
        let _stage = enter(Stage::Store);
        let result = in_time(bind::<Postgres>(sql, values).fetch_all(held.connection()?)).await;
        held.ended(result)
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let _stage = enter(Stage::Store);
        outlast_for(READ_PATIENCE, is_lost, || self.rows(sql, values)).await
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
