//! One at a time per task, or whatever else has a name, without a lock for each.

use std::hash::{BuildHasher, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// How many locks there are. Names share them.
const DOORS: usize = 64;

/// Locks by names, such as the ids of tasks. Whoever has one must not ask for a second one.
pub(crate) struct Doors {
    locks: [Mutex<()>; DOORS],
    hasher: RandomState,
}

impl Doors {
    pub(crate) fn new() -> Self {
        Self { locks: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }

    /// Waits until nobody else is at work on this one.
    pub(crate) async fn enter(&self, name: &impl Hash) -> MutexGuard<'_, ()> {
        let number = usize::try_from(self.hasher.hash_one(name) % DOORS as u64).unwrap_or_default();
        #[expect(clippy::indexing_slicing, reason = "there are as many doors as numbers")]
        self.locks[number].lock().await
    }
}
