//! Diagnostics of a PostgreSQL database, for checks before the server starts.

use std::time::{Duration, SystemTime};

use sqlx::{AssertSqlSafe, Connection, Postgres};

use super::PostgresConnections;
use super::pool::in_time;
use crate::Migrations;

/// Version, clock, connections and migrations of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct PostgresState {
    /// Version of PostgreSQL.
    pub version: String,
    /// Time of day on the database server.
    pub now: SystemTime,
    /// Value of `max_connections`.
    pub max_connections: i64,
    /// Number of open client connections.
    pub connections: i64,
    /// Last applied migration of each requested store; `None` if its tables do not exist yet.
    pub applied: Vec<Option<i64>>,
}

const STATE: &str = "SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8, \
                     current_setting('max_connections')::int8, \
                     (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')";

impl PostgresConnections {
    /// Queries the database over a connection of its own. Changes nothing.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the query to this user.
    pub async fn state(&self, migrations: &[Migrations]) -> sqlx::Result<PostgresState> {
        let mut connection = self.connect().await?;
        let state: (String, f64, i64, i64) = in_time(sqlx::query_as(STATE).fetch_one(&mut connection)).await?;
        let (version, now, max_connections, connections) = state;
        let mut applied = Vec::new();
        for Migrations { table, .. } in migrations {
            let is_there = sqlx::query_scalar::<Postgres, bool>("SELECT to_regclass($1) IS NOT NULL").bind(*table);
            let is_there = in_time(is_there.fetch_one(&mut connection)).await?;
            let last = AssertSqlSafe(format!("SELECT max(version) FROM {table}"));
            let last = sqlx::query_scalar::<Postgres, Option<i64>>(last);
            applied.push(if is_there { in_time(last.fetch_one(&mut connection)).await? } else { None });
        }
        connection.close().await?;
        let now = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(now).unwrap_or_default();
        Ok(PostgresState { version, now, max_connections, connections, applied })
    }
}
