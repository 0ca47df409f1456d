//! One PostgreSQL database.

use std::slice;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, Postgres, Transaction};

use crate::database::{Database, Parameters, Row, Step, Value, bind, text_of};
use crate::{Migrations, OpenError};

/// Connections to one PostgreSQL database, version 12 or later.
///
/// Any number of processes can write. What a crash of the database server can lose is a matter of its
/// `synchronous_commit`; with the default nothing that was stored.
#[derive(Debug)]
pub struct PostgresDatabase {
    pool: PgPool,
}

/// The longest wait for a connection, be it for others to finish or for the database to answer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

impl PostgresDatabase {
    /// Connects with at most `connections` connections and brings the tables up to date.
    ///
    /// `url` is `postgres://user:password@host:port/database`, with parameters such as `sslmode=verify-full`. TLS is
    /// rustls with ring and the certificate authorities of Mozilla, or `sslrootcert`. What the URL leaves out comes from
    /// the `PG…` environment variables.
    ///
    /// # Errors
    /// [`OpenError::Database`] when the URL is none or the database is not reached, [`OpenError::Migration`] when a
    /// later version of the software wrote the tables. Neither repeats the URL.
    pub async fn connect(url: &str, connections: u32, migrations: Migrations) -> Result<Self, OpenError> {
        let options = url.parse::<PgConnectOptions>()?.application_name("annex");
        // Not from the pool, which would try again until its time is up and then hide the cause.
        let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, PgConnection::connect_with(&options)).await;
        let mut connection = connected.map_err(|_| sqlx::Error::PoolTimedOut)??;
        migrations.migrator().run(&mut connection).await?;
        connection.close().await?;
        let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_TIMEOUT);
        let pool = pool.connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// The same database over at most `connections` connections of its own, for what must not wait for the others.
    /// Waiting for one of them takes `timeout` at most.
    #[must_use]
    pub fn beside(&self, connections: u32, timeout: Duration) -> Self {
        let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(timeout);
        // Kept for good: where others have taken all that the database gives, a new one would not be had.
        let pool = pool.idle_timeout(None).max_lifetime(None);
        let options = PgConnectOptions::clone(&self.pool.connect_options());
        Self { pool: pool.connect_lazy_with(options) }
    }
}

impl Database for PostgresDatabase {
    type Row = PgRow;
    type Transaction = Transaction<'static, Postgres>;
    // The number is an arbitrary one that nothing else locks.
    const LOCK_SWEEP: Option<&'static str> = Some("SELECT pg_advisory_xact_lock(4711240513)");
    const HAS_ONE_WRITER: bool = false;

    async fn close(&self) {
        self.pool.close().await;
    }

    async fn begin(&self) -> sqlx::Result<Self::Transaction> {
        self.pool.begin().await
    }

    async fn commit(transaction: Self::Transaction) -> sqlx::Result<()> {
        transaction.commit().await
    }

    async fn execute(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        Ok(bind::<Postgres>(sql, values).execute(&mut **transaction).await?.rows_affected())
    }

    async fn execute_all(transaction: &mut Self::Transaction, steps: &[Step<'_>]) -> sqlx::Result<Vec<u64>> {
        let mut changed = Vec::with_capacity(steps.len());
        for step in steps {
            let query =
                bind::<Postgres>(AssertSqlSafe(text_of(slice::from_ref(step), Parameters::Numbered)), &step.values);
            changed.push(query.execute(&mut **transaction).await?.rows_affected());
            if changed.last() != Some(&step.changes) {
                break;
            }
        }
        Ok(changed)
    }

    async fn query(
        transaction: &mut Self::Transaction,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<PgRow>> {
        bind::<Postgres>(sql, values).fetch_all(&mut **transaction).await
    }

    async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<PgRow>> {
        bind::<Postgres>(sql, values).fetch_all(&self.pool).await
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
