//! This process among those that share the store of conversations.

use std::sync::Arc;

use annex_conversation::StoreError;
use annex_leases::{Lease, Replica};

/// This process among those that share the store of conversations.
#[derive(Clone)]
pub struct Process {
    /// The lease. `None` for a store that only one process can use.
    lease: Option<Arc<Lease>>,
    alone: Replica,
    outlives: bool,
}

impl Process {
    /// A process that has a store in memory, which ends with the process.
    #[must_use]
    pub fn with_memory() -> Self {
        Self { lease: None, alone: Replica::alone(), outlives: false }
    }

    /// A process that has a file alone, as `replica`.
    #[must_use]
    pub fn with_file(replica: Replica) -> Self {
        Self { lease: None, alone: replica, outlives: true }
    }

    /// A process that shares a database with others.
    #[must_use]
    pub fn among_others(lease: Arc<Lease>) -> Self {
        Self { lease: Some(lease), alone: Replica::alone(), outlives: true }
    }

    /// The current replica.
    #[must_use]
    pub fn replica(&self) -> Replica {
        self.lease.as_ref().map_or_else(|| self.alone.clone(), |lease| lease.replica())
    }

    /// Ends the lease, after the last use of the store.
    pub(crate) async fn end(&self) {
        if let Some(lease) = &self.lease {
            lease.end().await;
        }
    }

    /// Forgets processes whose leases ended long ago.
    pub(crate) async fn forget_gone(&self) -> Result<(), StoreError> {
        match &self.lease {
            Some(lease) => Ok(lease.forget_gone().await?),
            None => Ok(()),
        }
    }

    /// True if other processes may work on the same conversations.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.lease.is_some()
    }

    /// True if the store outlives this process, so that a later one can run the turns that wait.
    pub(crate) fn store_outlives(&self) -> bool {
        self.outlives
    }

    /// True if this process may take over turns of other processes.
    pub(crate) fn may_judge(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.may_judge())
    }
}
