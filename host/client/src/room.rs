//! The bytes that streams may have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ClientError;

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

    /// Takes room for what has come from `url`.
    ///
    /// # Errors
    /// [`ClientError::TooLarge`] when not so much is left.
    pub(crate) fn take(&self, bytes: usize, url: &str) -> Result<(), ClientError> {
        let rest = |left: usize| left.checked_sub(bytes);
        // Relaxed, because streams agree on this number alone; no other memory is published by it.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        let too_large = |_| ClientError::TooLarge { url: url.to_owned(), max_bytes: self.most };
        taken.map(drop).map_err(too_large)
    }
}
