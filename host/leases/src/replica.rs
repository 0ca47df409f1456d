//! A process for the time of one lease.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A process for the time of one lease. A process whose lease ends becomes another replica. Clones are the same replica.
#[derive(Clone, Debug)]
pub struct Replica {
    id: Arc<str>,
    over: CancellationToken,
}

/// A replica of another process, whose lease this process does not end.
impl From<&str> for Replica {
    fn from(id: &str) -> Self {
        Self { id: id.into(), over: CancellationToken::new() }
    }
}

impl Replica {
    pub(crate) fn new() -> Self {
        Self { id: Uuid::now_v7().to_string().into(), over: CancellationToken::new() }
    }

    /// The id, as the database has it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// True after the end of the lease, as far as this process knows. Another process may have taken over the work by then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Resolves when the lease ends.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    pub(crate) fn end(&self) {
        self.over.cancel();
    }
}
