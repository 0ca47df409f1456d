//! The right to write to a conversation, and the processes that have it.

use annex_leases::Replica;

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
