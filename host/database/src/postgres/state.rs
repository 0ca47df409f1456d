//! What a database says of itself, for whoever looks for faults before a start.

use std::time::{Duration, SystemTime};

use sqlx::{AssertSqlSafe, Connection, Postgres};

use super::PostgresConnections;
use super::pool::in_time;
use crate::Migrations;

/// What a database says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct PostgresState {
    /// The version of PostgreSQL.
    pub version: String,
    /// Its time of day.
    pub now: SystemTime,
    /// The most connections that it takes.
    pub max_connections: i64,
    /// Those that it has.
    pub connections: i64,
    /// The last migration of each kind of tables that was asked for; `None` where there are no such tables yet.
    pub applied: Vec<Option<i64>>,
}

const STATE: &str = "SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8, \
                     current_setting('max_connections')::int8, \
                     (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')";

impl PostgresConnections {
    /// Asks the database, over a connection of its own. Nothing is changed.
    ///
    /// # Errors
    /// When the database is not reached, or does not let this user ask.
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
