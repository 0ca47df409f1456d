//! What a process is from one beginning of its lease to its end.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A process as long as it keeps one lease. When that is over the process is another replica. Clones are the same.
#[derive(Clone, Debug)]
pub struct Replica {
    id: Arc<str>,
    over: CancellationToken,
}

/// A replica whose lease is not this process's to end.
impl From<&str> for Replica {
    fn from(id: &str) -> Self {
        Self { id: id.into(), over: CancellationToken::new() }
    }
}

impl Replica {
    pub(crate) fn new() -> Self {
        Self { id: Uuid::now_v7().to_string().into(), over: CancellationToken::new() }
    }

    /// Its id, as in the table `replica`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// True once its lease is over, as far as this process knows: what it worked on may be somebody else's.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Resolves when its lease is over.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    pub(crate) fn end(&self) {
        self.over.cancel();
    }
}
