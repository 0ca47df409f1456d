//! Locks by name, such as one for each task. Names share a fixed number of them.

use std::hash::{BuildHasher, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// The number of locks. Names share them.
const LOCKS: usize = 64;

/// Locks by names, such as the ids of tasks. Whoever holds one must not ask for a second one, which may be the same.
pub(crate) struct KeyedLocks {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl KeyedLocks {
    pub(crate) fn new() -> Self {
        // Clients choose some of the names. The hash has a random key, so nobody can choose names that share one lock.
        Self { locks: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }

    /// Waits until nobody else is at work on this one.
    pub(crate) async fn lock(&self, name: &impl Hash) -> MutexGuard<'_, ()> {
        let number = usize::try_from(self.hasher.hash_one(name) % LOCKS as u64).unwrap_or_default();
        #[expect(clippy::indexing_slicing, reason = "there are as many locks as numbers")]
        self.locks[number].lock().await
    }
}
