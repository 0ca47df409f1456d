//! `[postgres]`: the connections to PostgreSQL databases.

use serde::Deserialize;

use super::tasks::TasksConfig;

/// The table `[postgres]`: the connections to PostgreSQL databases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// The maximum number of connections to one database at the same time. All stores of the process in this database
    /// share the connections. Default 10.
    pub max_connections: u32,
    /// Name of the environment variable with a second URL of the tasks' database. LISTEN must work over this URL.
    /// Needed if the URL of `tasks.postgres_env` leads to a pooler. Default: the URL of `tasks.postgres_env`.
    pub listen_env: Option<String>,
}

impl PostgresConfig {
    /// Checks that `listen_env` is used only with tasks in PostgreSQL. The error is a pair of key and reason.
    pub(super) fn check(&self, tasks: &TasksConfig) -> Result<(), (&'static str, String)> {
        if self.listen_env.is_some() { tasks.check_shared("postgres.listen_env") } else { Ok(()) }
    }
}

impl Default for PostgresConfig {
    fn default() -> Self {
        // PostgreSQL allows 100 connections by default, enough for nine such processes.
        Self { max_connections: 10, listen_env: None }
    }
}
