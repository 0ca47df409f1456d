//! Locks by name, such as one per task id. All names share a fixed number of locks.

use std::hash::{BuildHasher, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// The number of locks that the names are spread over.
const LOCKS: usize = 64;

/// Locks by name. Two names may share a lock. A holder must therefore not take the lock of another name: it could wait
/// for itself.
pub(crate) struct KeyedLocks {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl KeyedLocks {
    pub(crate) fn new() -> Self {
        // Clients choose some of the names. The hash has a random key, so no client can find names that share a lock.
        Self { locks: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }

    /// Takes the lock of the name.
    pub(crate) async fn lock(&self, name: &impl Hash) -> MutexGuard<'_, ()> {
        let number = usize::try_from(self.hasher.hash_one(name) % LOCKS as u64).unwrap_or_default();
        #[expect(clippy::indexing_slicing, reason = "there are as many locks as numbers")]
        self.locks[number].lock().await
    }
}
