//! The connections to PostgreSQL: one pool per database, shared by all stores in it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use annex_database::{OpenError, PostgresConnections};

use crate::config::PostgresConfig;

/// The pools of the databases that the process has opened. Clones share one set of pools.
#[derive(Clone)]
pub(crate) struct PostgresDatabases {
    max_connections: u32,
    by_url: Arc<Mutex<HashMap<String, PostgresConnections>>>,
}

impl PostgresDatabases {
    pub(crate) fn new(config: &PostgresConfig) -> Self {
        Self { max_connections: config.max_connections, by_url: Arc::default() }
    }

    /// The pool of the database at `url`. All callers with the same URL share one pool.
    ///
    /// # Errors
    /// When `url` is not the URL of a PostgreSQL database.
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
