//! One at a time per task, without a lock for each task.

use std::hash::{BuildHasher, RandomState};

use annex_protocol::TaskId;
use tokio::sync::{Mutex, MutexGuard};

/// How many locks there are. Tasks share them.
const DOORS: usize = 64;

/// Locks for tasks by their ids. Whoever has one must not ask for a second one.
pub(crate) struct Doors {
    locks: [Mutex<()>; DOORS],
    hasher: RandomState,
}

impl Doors {
    pub(crate) fn new() -> Self {
        Self { locks: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }

    /// Waits until nobody else is at work on this task.
    pub(crate) async fn enter(&self, id: &TaskId) -> MutexGuard<'_, ()> {
        let number = usize::try_from(self.hasher.hash_one(id) % DOORS as u64).unwrap_or_default();
        #[expect(clippy::indexing_slicing, reason = "there are as many doors as numbers")]
        self.locks[number].lock().await
    }
}
