//! The connections to PostgreSQL databases: one pool for each database, whatever is kept there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use annex_database::{OpenError, PostgresConnections};

use crate::config::PostgresConfig;

/// The databases that the stores of the process have opened. Clones are the same.
#[derive(Clone)]
pub(crate) struct PostgresDatabases {
    max_connections: u32,
    by_url: Arc<Mutex<HashMap<String, PostgresConnections>>>,
}

impl PostgresDatabases {
    pub(crate) fn new(config: &PostgresConfig) -> Self {
        Self { max_connections: config.max_connections, by_url: Arc::default() }
    }

    /// The connections to the database at `url`, which all share who ask for it.
    ///
    /// # Errors
    /// When it is no URL of a database.
    pub(crate) fn at(&self, url: &str) -> Result<PostgresConnections, OpenError> {
        let mut by_url = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = by_url.get(url) {
            return Ok(connections.clone());
        }
        let connections = PostgresConnections::new(url, self.max_connections)?;
        by_url.insert(url.to_owned(), connections.clone());
        Ok(connections)
    }
}
