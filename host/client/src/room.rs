//! The bytes that streams may have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that the streams of several calls may have together, with comments and all else that keeps them alive. Clones
/// are the same room.
#[derive(Clone, Debug)]
pub struct StreamRoom {
    most: usize,
    left: Arc<AtomicUsize>,
}

impl StreamRoom {
    /// Room for so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { most: bytes, left: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// Takes room for bytes that have come.
    ///
    /// # Errors
    /// [`NoRoom`] when not so much is left.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        let rest = |left: usize| left.checked_sub(bytes);
        // Relaxed, because streams agree on this number alone; no other memory is published by it.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        taken.map(drop).map_err(|_| NoRoom { most: self.most })
    }
}

/// The streams have brought more bytes than they may have together.
pub(crate) struct NoRoom {
    /// The bytes that they may have.
    pub(crate) most: usize,
}
