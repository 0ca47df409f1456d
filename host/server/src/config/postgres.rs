//! `[postgres]`: the connections to PostgreSQL databases.

use serde::Deserialize;

/// `[postgres]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// The most connections at once to one database, for all that the process keeps there. Default 10.
    pub max_connections: u32,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        // PostgreSQL takes 100 by default, so that nine processes have room beside its own.
        Self { max_connections: 10 }
    }
}
