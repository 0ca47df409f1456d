//! The clock of a database and the clock of tokio, which only the test moves.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::cluster::Scratch;

/// Functions that PostgreSQL finds before its own. They return the time in a row of a table. Each call returns a microsecond
/// more, so that later records have later times.
const STOP: &str = "
    CREATE SCHEMA clock;
    CREATE TABLE clock.now AS SELECT clock_timestamp() AS time;
    CREATE SEQUENCE clock.calls;
    CREATE FUNCTION clock.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE
        AS 'SELECT time + nextval(''clock.calls'') * INTERVAL ''1 microsecond'' FROM clock.now';
    CREATE FUNCTION clock.statement_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql STABLE
        AS 'SELECT time + (SELECT last_value FROM clock.calls) * INTERVAL ''1 microsecond'' FROM clock.now';
    DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET search_path = public, clock, pg_catalog'', current_database()); END'";

/// A time that is long enough for any answer of the database.
const LONG: Duration = Duration::from_secs(60);
/// The time between two renewals of a lease.
pub(crate) const RENEWAL: Duration = Duration::from_millis(1_250);

/// An empty database and a clock that stands still.
pub(crate) struct Clock {
    scratch: Scratch,
    pub(crate) database: PgConnection,
    /// Ends the thread that holds the clock of tokio.
    _hold: mpsc::Sender<()>,
}

impl Clock {
    /// Creates a clock for a test that begins with a paused clock. Without a PostgreSQL server, prints a message and returns
    /// `None`.
    pub(crate) async fn create() -> Option<Self> {
        // Tokio moves a paused clock by itself while all wait, also for the database, but not while a thread is at work.
        let (hold, held) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let scratch = Scratch::create().await?;
        let mut database = PgConnection::connect(scratch.url()).await.unwrap();
        sqlx::raw_sql(STOP).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
        let database = PgConnection::connect(scratch.url()).await.unwrap();
        Some(Self { scratch, database, _hold: hold })
    }

    pub(crate) fn url(&self) -> &str {
        self.scratch.url()
    }

    /// Lets time pass in the database and in the process.
    pub(crate) async fn pass(&mut self, time: Duration) {
        self.pass_in_database(time).await;
        tokio::time::advance(time).await;
    }

    pub(crate) async fn pass_in_database(&mut self, time: Duration) {
        let pass = sqlx::query("UPDATE clock.now SET time = time + $1 * INTERVAL '1 second'").bind(time.as_secs_f64());
        pass.execute(&mut self.database).await.unwrap();
    }

    /// Waits for something that needs no time to pass, or very little.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        let mut looks = 0;
        while !is_so() {
            assert!(begin.elapsed() < LONG, "not {what}");
            self.look_away().await;
            looks += 1;
            // An attempt that failed is made again 200 milliseconds later.
            if looks % 500 == 0 {
                self.pass(Duration::from_millis(200)).await;
            }
        }
    }

    /// Waits until the database answers `sql` with this number.
    pub(crate) async fn until_number(&mut self, sql: &str, number: i64) {
        let begin = Instant::now();
        while self.number(sql).await != number {
            assert!(begin.elapsed() < LONG, "{sql} is never {number}");
            self.look_away().await;
        }
    }

    /// Waits for the renewal that each process makes at once when its first lease begins.
    pub(crate) async fn until_renewed(&mut self, replica: &str) {
        let renewed = format!(
            "SELECT count(*) FROM replica WHERE id = '{replica}' AND lease_until > since + INTERVAL '5.000001 seconds'"
        );
        self.until_number(&renewed, 1).await;
    }

    /// Waits two milliseconds of real time, so that other tasks can work. The clock of tokio stands still.
    async fn look_away(&mut self) {
        sqlx::query("SELECT pg_sleep(0.002)").execute(&mut self.database).await.unwrap();
    }

    /// Lets time pass until the next renewal, and waits until the lease of each process is new. Each function names the replica
    /// of a process.
    pub(crate) async fn renew(&mut self, replicas: &[&dyn Fn() -> String]) {
        self.pass(RENEWAL).await;
        let begin = Instant::now();
        for replica in replicas {
            while self.left(&replica()).await.is_none_or(|left| left < 4.9) {
                assert!(begin.elapsed() < LONG, "{} is not renewed", replica());
                self.look_away().await;
            }
        }
    }

    /// The rest of the lease in seconds; `None` without a row.
    pub(crate) async fn left(&mut self, replica: &str) -> Option<f64> {
        let left = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM replica WHERE id = $1";
        sqlx::query_scalar(left).bind(replica).fetch_optional(&mut self.database).await.unwrap()
    }

    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.database).await.unwrap()
    }

    pub(crate) async fn remove(self) {
        self.database.close().await.unwrap();
        self.scratch.remove().await;
    }
}
