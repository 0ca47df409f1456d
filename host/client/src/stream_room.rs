//! A limit on the bytes of several streams together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on the bytes that the streams of several calls receive together. The bytes of keep-alive comments count too. Clones
/// share the limit.
#[derive(Clone, Debug)]
pub struct StreamRoom {
    most: usize,
    left: Arc<AtomicUsize>,
}

impl StreamRoom {
    /// Creates a limit of this number of bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { most: bytes, left: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// Counts received bytes.
    ///
    /// # Errors
    /// [`NoRoom`] when all received bytes together exceed the limit.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        let rest = |left: usize| left.checked_sub(bytes);
        // Relaxed suffices, because streams share only this number and no other memory.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        taken.map(drop).map_err(|_| NoRoom { most: self.most })
    }
}

/// The error for streams that exceed their common limit.
pub(crate) struct NoRoom {
    /// The limit in bytes.
    pub(crate) most: usize,
}
