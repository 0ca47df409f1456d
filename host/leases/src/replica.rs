//! A process for the time of one lease.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A process for the time of one lease. After the end of its lease the process becomes another replica. Replicas with the same
/// id are equal.
#[derive(Clone)]
pub struct Replica(Arc<LeasedProcess>);

struct LeasedProcess {
    id: Box<str>,
    over: CancellationToken,
}

/// Creates a replica from the id of another process. This process never ends the lease of such a replica.
impl<T: Into<Box<str>>> From<T> for Replica {
    fn from(id: T) -> Self {
        Self(Arc::new(LeasedProcess { id: id.into(), over: CancellationToken::new() }))
    }
}

impl Replica {
    /// A new replica for this process.
    pub(crate) fn new() -> Self {
        Self::from(Uuid::now_v7().to_string())
    }

    /// A replica for a process whose store no other process uses. Its lease never ends.
    #[must_use]
    pub fn alone() -> Self {
        Self::new()
    }

    /// The id of the replica in the database.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// True after the end of the lease, as far as this process knows. Another process may have taken over the work of the
    /// replica by then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// Resolves when the lease ends.
    pub async fn over(&self) {
        self.0.over.cancelled().await;
    }

    pub(crate) fn end(&self) {
        self.0.over.cancel();
    }
}

impl PartialEq for Replica {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.id() == other.id()
    }
}

impl Eq for Replica {}

impl PartialOrd for Replica {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Replica {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id().cmp(other.id())
    }
}

impl Hash for Replica {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.id(), formatter)
    }
}
