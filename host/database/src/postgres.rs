//! One PostgreSQL database.

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annex_fairness::{FairPlaces, Place, current_tenant};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, Postgres, Transaction};

use crate::database::{Begun, Database, Row, Step, Value, bind};
use crate::text::{Form, one_statement, text_of};
use crate::{Migrations, OpenError, may_pass, outlast_for};

/// The connections to one PostgreSQL database, for all that is kept in it. Clones share them.
#[derive(Clone, Debug)]
pub struct PostgresConnections {
    options: PgConnectOptions,
    pool: FairPool,
}

/// Connections that tenants which wait get in turn. The pool by itself serves those who wait in the order in which they came,
/// so that whoever has many turns would hold up all others.
#[derive(Clone, Debug)]
struct FairPool {
    pool: PgPool,
    /// One for each connection.
    places: FairPlaces,
    lost: LostConnection,
}

/// A transaction, with the place of its connection.
pub struct PostgresTransaction {
    transaction: Transaction<'static, Postgres>,
    // Dropped last, so that the connection is back in the pool when another one gets the place.
    _place: Place,
}

impl FairPool {
    fn new(pool: PgPool, connections: u32, lost: LostConnection) -> Self {
        Self { pool, places: FairPlaces::new(usize::try_from(connections).unwrap_or(usize::MAX)), lost }
    }

    /// Waits for a connection to be free. It is the caller's as long as it holds the place.
    async fn place(&self) -> sqlx::Result<Place> {
        if let Some(place) = self.places.try_take() {
            return Ok(place);
        }
        let timeout = self.pool.options().get_acquire_timeout();
        let place = tokio::time::timeout(timeout, self.places.take(&current_tenant())).await;
        place.map_err(|_| sqlx::Error::PoolTimedOut)
    }
}

/// One PostgreSQL database, version 12 or later.
///
/// Any number of processes can write. What a crash of the database server can lose is a matter of its
/// `synchronous_commit`; with the default nothing that was stored.
#[derive(Debug)]
pub struct PostgresDatabase {
    pool: FairPool,
}

/// The moment when a connection was found to be lost: the others that have not been used since may be lost as well.
#[derive(Clone, Debug, Default)]
struct LostConnection(Arc<Mutex<Option<Instant>>>);

/// The longest wait for a connection, be it for others to finish or for the database to answer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Round trips of which the least counts: the machine may be busy during some of them.
const TRIPS: u32 = 4;
/// A connection that was used so recently is taken to be well.
const IDLE_TRUST: Duration = Duration::from_secs(1);
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
        let pool = PgPoolOptions::new().max_connections(most).acquire_timeout(ACQUIRE_TIMEOUT);
        // Asking each time whether a connection is well would cost as much as most statements do.
        let lost = LostConnection::default();
        let known = lost.clone();
        let pool = pool.test_before_acquire(false).before_acquire(move |connection, use_of| {
            let is_doubtful = use_of.idle_for >= IDLE_TRUST || known.is_since(use_of.idle_for);
            Box::pin(async move {
                if is_doubtful {
                    connection.ping().await?;
                }
                Ok(true)
            })
        });
        let pool = FairPool::new(pool.connect_lazy_with(options.clone()), most, lost);
        Ok(Self { options, pool })
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
            connection.ping().await?;
            least = least.min(asked.elapsed());
        }
        connection.close().await?;
        Ok(least)
    }

    /// A connection that is not from the pool, which would try again until its time is up and then hide the cause.
    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, PgConnection::connect_with(&self.options)).await;
        connected.map_err(|_| sqlx::Error::PoolTimedOut)?
    }

    /// A connection of its own that hears what is notified on `channel` from now on. Once it is lost it hears nothing more.
    ///
    /// # Errors
    /// When the database is not reached.
    pub async fn listen(&self, channel: &str) -> sqlx::Result<PgListener> {
        // The pool of the listener would hide why it cannot connect.
        self.connect().await?.close().await?;
        let pool = lasting(1, ACQUIRE_TIMEOUT).connect_lazy_with(self.options.clone());
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
        let pool = lasting(connections, timeout).connect_lazy_with(self.options.clone());
        PostgresDatabase { pool: FairPool::new(pool, connections, LostConnection::default()) }
    }
}

/// Connections that are kept for good: where others have taken all that the database gives, a new one would not be had.
fn lasting(connections: u32, timeout: Duration) -> PgPoolOptions {
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(timeout);
    pool.idle_timeout(None).max_lifetime(None)
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
        let options = PgConnectOptions::clone(&self.pool.pool.connect_options());
        let pool = lasting(connections, timeout).connect_lazy_with(options);
        Self { pool: FairPool::new(pool, connections, LostConnection::default()) }
    }

    async fn rows(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        let _place = self.pool.place().await?;
        self.pool.lost.noted(bind::<Postgres>(sql, values).fetch_all(&self.pool.pool).await)
    }
}

impl LostConnection {
    /// Takes note of an error that says that a connection is lost.
    fn noted<T>(&self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if result.as_ref().is_err_and(is_lost) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        result
    }

    /// True if one was lost within this time.
    fn is_since(&self, time: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|lost| lost.elapsed() <= time)
    }
}

/// True if the error is that of a connection. Waiting for one took its time already.
fn is_lost(error: &sqlx::Error) -> bool {
    may_pass(error) && !matches!(error, sqlx::Error::PoolTimedOut)
}

impl Database for PostgresDatabase {
    type Row = PgRow;
    type Transaction = PostgresTransaction;
    // The number is an arbitrary one that nothing else locks.
    const LOCK_SWEEP: Option<&'static str> = Some("SELECT pg_advisory_xact_lock(4711240513)");
    const HAS_ONE_WRITER: bool = false;

    async fn close(&self) {
        self.pool.pool.close().await;
    }

    async fn begin(&self) -> sqlx::Result<Self::Transaction> {
        let place = self.pool.place().await?;
        let transaction = self.pool.lost.noted(self.pool.pool.begin().await)?;
        Ok(PostgresTransaction { transaction, _place: place })
    }

    async fn commit(transaction: Self::Transaction) -> sqlx::Result<()> {
        transaction.transaction.commit().await
    }

    async fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        Ok(bind::<Postgres>(sql, values).execute(&mut *transaction.transaction).await?.rows_affected())
    }

    async fn execute_all(transaction: &mut Self::Transaction, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        let mut changed = Vec::with_capacity(steps.len());
        for step in steps {
            let query =
                bind::<Postgres>(AssertSqlSafe(text_of(slice::from_ref(step), Form::Numbered, "")), &step.values);
            changed.push(query.execute(&mut *transaction.transaction).await?.rows_affected());
            if changed.last() != Some(&step.changes) {
                break;
            }
        }
        Ok(changed)
    }

    async fn begin_with(&self, steps: &[Step<'_>]) -> sqlx::Result<Begun<Self>> {
        let mut transaction = self.begin().await?;
        let changed = Self::execute_all(&mut transaction, steps).await;
        Ok((transaction, changed))
    }

    /// A statement by itself is a transaction here, which the database begins and commits without being told to.
    async fn execute_alone(&self, steps: &[Step<'_>]) -> sqlx::Result<bool> {
        if let [step] = steps {
            let query = bind::<Postgres>(AssertSqlSafe(text_of(steps, Form::Numbered, "")), &step.values);
            // One that changed some of several rows would have to be taken back.
            if step.changes != 1 {
                return Ok(false);
            }
            let _place = self.pool.place().await?;
            return Ok(self.pool.lost.noted(query.execute(&self.pool.pool).await)?.rows_affected() == 1);
        }
        let Some((text, values)) = one_statement(steps) else { return Ok(false) };
        let _place = self.pool.place().await?;
        let query = bind::<Postgres>(AssertSqlSafe(text), &values);
        let row = self.pool.lost.noted(query.fetch_one(&self.pool.pool).await)?;
        Ok(row.int(0)? == 1)
    }

    async fn change(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        self.rows(sql, values).await
    }

    async fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<PgRow>> {
        bind::<Postgres>(sql, values).fetch_all(&mut *transaction.transaction).await
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
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
