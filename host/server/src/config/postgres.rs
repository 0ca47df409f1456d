//! `[postgres]`: the connections to PostgreSQL databases.

use serde::Deserialize;

use super::tasks::TasksConfig;

/// `[postgres]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// The most connections at once to one database, for all that the process keeps there. Default 10.
    pub max_connections: u32,
    /// The name of the environment variable with a URL of the database of the tasks on which LISTEN works, for a server that
    /// reaches it through a pooler. Default: the URL of `tasks.postgres_env`.
    pub listen_env: Option<String>,
}

impl PostgresConfig {
    /// Checks it beside the place of the tasks. An error is the key and the reason.
    pub(super) fn check(&self, tasks: &TasksConfig) -> Result<(), (&'static str, String)> {
        if self.listen_env.is_some() { tasks.check_shared("postgres.listen_env") } else { Ok(()) }
    }
}

impl Default for PostgresConfig {
    fn default() -> Self {
        // PostgreSQL takes 100 by default, so that nine processes have room beside its own.
        Self { max_connections: 10, listen_env: None }
    }
}
