//! The place of a turn in the queue of its session, where several processes work on the sessions of one database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annex_leases::Replica;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::session::Session;

/// The place of one turn in the queue of its session, which all processes on one database share.
///
/// It belongs to the replica that the process was when the turn came: a turn whose replica has lost its lease never gets
/// another one.
#[derive(Clone, Debug)]
pub struct TurnPlace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    replica: Replica,
    /// The replica and a number, which no other turn has.
    member: String,
    /// True unless it is certain that the queue does not have the member.
    may_be_in: AtomicBool,
    /// True if the turn has left with its last event.
    has_left: AtomicBool,
    /// True if the member may still enter the queue, because the outcome of the statement is unknown.
    is_doubtful: AtomicBool,
    /// Held while the turn joins, so that the turn cannot leave before it has joined.
    joining: Arc<Mutex<()>>,
}

/// The result of joining the queue of a session.
#[derive(Debug)]
pub enum Joined {
    /// The turn runs; the session is current.
    Runs(Box<Session>),
    /// The turn waits for earlier turns in the queue.
    Waits,
}

impl TurnPlace {
    /// A new place outside of the queue.
    pub(crate) fn new(replica: Replica) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let member = format!("{}/{}", replica.id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let may_be_in = AtomicBool::new(false);
        let has_left = AtomicBool::new(false);
        let is_doubtful = AtomicBool::new(false);
        Self(Arc::new(Inner { replica, member, may_be_in, has_left, is_doubtful, joining: Arc::default() }))
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.0.replica
    }

    pub(crate) fn member(&self) -> &str {
        &self.0.member
    }

    pub(crate) fn may_be_in(&self) -> bool {
        self.0.may_be_in.load(Ordering::SeqCst)
    }

    pub(crate) fn set_in(&self, may_be_in: bool) {
        self.0.may_be_in.store(may_be_in, Ordering::SeqCst);
        self.0.has_left.store(false, Ordering::SeqCst);
    }

    pub(crate) fn leave_with_last(&self) {
        self.0.may_be_in.store(false, Ordering::SeqCst);
        self.0.has_left.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.0.has_left.load(Ordering::SeqCst)
    }

    pub(crate) fn doubt(&self) {
        self.0.is_doubtful.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.0.is_doubtful.load(Ordering::SeqCst)
    }

    /// Waits until the turn does not join, and keeps it from joining.
    pub(crate) async fn lock(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.joining).lock_owned().await
    }
}
