//! The right to write to a conversation, and the processes that have it.

use annex_leases::Replica;

/// The right to write to a conversation. Each turn gets a fence when it enters the queue. Only the turn at the head of
/// the queue may append an event. If another process takes a turn over, the turn gets a new fence. The process that
/// lost the turn can then write nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The process that works on the turn. It may write only while its lease is valid.
    pub replica: Replica,
    /// A number that the replica has given to no other turn.
    pub epoch: u64,
}

/// Knows which replicas have a valid lease.
pub trait Leases: Send + Sync + 'static {
    /// True while the lease of the replica is valid.
    fn is_alive(&self, replica: &Replica) -> bool;
}

/// The leases of a store with a single process. Every lease is valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneProcess;

impl Leases for OneProcess {
    fn is_alive(&self, _replica: &Replica) -> bool {
        true
    }
}
