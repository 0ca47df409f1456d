//! The identity of this process: its lease or replica, and whether other processes share its store of conversations.

use std::sync::Arc;

use annex_conversation::StoreError;
use annex_leases::{Lease, Replica};

/// The identity of this process in the store of conversations, and whether other processes share that store.
#[derive(Clone)]
pub struct Process {
    /// The lease of this process. `None` for a store that only one process can use.
    lease: Option<Arc<Lease>>,
    alone: Replica,
    outlives: bool,
}

impl Process {
    /// A process whose store is in memory. The store ends with the process.
    #[must_use]
    pub fn with_memory() -> Self {
        Self { lease: None, alone: Replica::alone(), outlives: false }
    }

    /// A process whose store is a file that no other process uses. `replica` is the identity of this process in the file.
    #[must_use]
    pub fn with_file(replica: Replica) -> Self {
        Self { lease: None, alone: replica, outlives: true }
    }

    /// A process that shares a database with other processes.
    #[must_use]
    pub fn among_others(lease: Arc<Lease>) -> Self {
        Self { lease: Some(lease), alone: Replica::alone(), outlives: true }
    }

    /// The current replica of this process. A process that loses its lease becomes another replica.
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

    /// Deletes the replicas whose leases ended long ago, and the turn places of replicas without a valid lease.
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

    /// True if the store outlives this process. A later process can then run the turns that wait.
    pub(crate) fn store_outlives(&self) -> bool {
        self.outlives
    }

    /// True if this process may take over turns of other processes.
    pub(crate) fn may_judge(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.may_judge())
    }
}
