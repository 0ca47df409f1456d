//! Places of turns that all processes on one database count together.

use annex_protocol::Owner;
use async_trait::async_trait;

use crate::StoreError;

/// Counts the running turns of a caller across all processes. A turn has a place, and a place is released when the
/// lease of its process ends.
#[async_trait]
pub trait TurnPlaceStore: Send + Sync {
    /// The processes that are alive, this one among them.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn processes(&self) -> Result<usize, StoreError>;

    /// The turns with a task that run now for a tenant, in all processes.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn running(&self, tenant: &str) -> Result<u64, StoreError>;

    /// Takes a place for the caller under a new id, unless the caller has `most` places already. Among concurrent
    /// calls, `most` get `true`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn take(&self, owner: &Owner, id: &str, most: usize) -> Result<bool, StoreError>;

    /// Releases a place. Releasing a place twice is not an error.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn give_back(&self, id: &str) -> Result<(), StoreError>;
}
