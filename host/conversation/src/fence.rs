//! The right to write to a conversation, and the processes that have it.

use std::fmt;
use std::sync::Arc;

/// A process that works on conversations. Each start of a process is another replica, and so is a process that has lost its
/// lease and begun another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica(Arc<str>);

/// The right to write to a conversation. Each turn gets one when it enters the queue, and only the turn at the head of the
/// queue may say something in the conversation. A turn that is taken over goes on under the fence of the process that took
/// it, so that the process which lost it can write nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The process that works on the turn. It may write only while its lease holds.
    pub replica: Replica,
    /// A number that the replica has given to no other turn.
    pub epoch: u64,
}

/// Tells which replicas have a lease.
pub trait Leases: Send + Sync + 'static {
    /// True while the lease of the replica holds.
    fn is_alive(&self, replica: &Replica) -> bool;
}

/// The leases of a store with one process: every lease holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneProcess;

impl Leases for OneProcess {
    fn is_alive(&self, _replica: &Replica) -> bool {
        true
    }
}

impl Replica {
    /// The id that no other start of a process has.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Replica {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}
