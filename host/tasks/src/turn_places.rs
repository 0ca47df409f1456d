//! Places of turns that all processes on one database count together.

use annex_protocol::Owner;
use async_trait::async_trait;

use crate::StoreError;

/// Counts the turns of a caller that take a place which any process may take. A place goes with the process that has it,
/// once its lease is over.
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

    /// Takes a place of the caller under a new id, unless there are `most` of its by now. Of any number of processes at once,
    /// `most` are told `true`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn take(&self, owner: &Owner, id: &str, most: usize) -> Result<bool, StoreError>;

    /// Gives a place back; that it is not there is no error.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn give_back(&self, id: &str) -> Result<(), StoreError>;
}
