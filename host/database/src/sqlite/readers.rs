//! The connections for reading.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annex_fairness::{FairPlaces, current_tenant};
use tokio::sync::Mutex;

use super::ACQUIRE_TIMEOUT;
use super::connection::{Access, Connection};
use super::statements::{Batch, SqliteRow};
use crate::Value;

const READERS: usize = 4;

/// Connections for reading.
#[derive(Debug)]
pub(super) struct Readers {
    file: Arc<Path>,
    /// Each connection is opened on first use.
    connections: [Mutex<Option<Connection>>; READERS],
    /// One place per connection. Waiting tenants are served round robin.
    free: FairPlaces,
    is_closed: AtomicBool,
}

impl Readers {
    pub(super) fn of(file: Arc<Path>) -> Self {
        let connections = std::array::from_fn(|_| Mutex::default());
        Self { file, connections, free: FairPlaces::new(READERS), is_closed: AtomicBool::new(false) }
    }

    pub(super) async fn read(&self, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<Vec<SqliteRow>> {
        let tenant = current_tenant();
        let waiting = tokio::time::timeout(ACQUIRE_TIMEOUT, self.free.take(&tenant));
        // Dropped after the connection guard.
        let _place = waiting.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(sqlx::Error::PoolClosed);
        }
        let free = self.connections.iter().find_map(|connection| connection.try_lock().ok());
        // No free connection although a place was free: the database was closed in the meantime.
        let mut place = free.ok_or(sqlx::Error::PoolClosed)?;
        let connection = match &mut *place {
            Some(connection) => connection,
            closed => closed.insert(Connection::open(Arc::clone(&self.file), Access::Read).await?),
        };
        let found = connection.read(Batch::fixed(sql, values)).await;
        // After an error the next read opens a new connection.
        if found.is_err() {
            *place = None;
        }
        found.map(|found| found.rows)
    }

    /// Closes the connections that are not in use.
    pub(super) async fn close_idle(&self) {
        for place in &self.connections {
            // Locked for a moment only: a reader that has a place expects a connection that is free.
            let idle = place.try_lock().ok().and_then(|mut place| place.take());
            if let Some(connection) = idle {
                connection.close().await;
            }
        }
    }

    pub(super) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for place in &self.connections {
            if let Some(connection) = place.lock().await.take() {
                connection.close().await;
            }
        }
    }
}
