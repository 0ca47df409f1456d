//! Bytes that the compiled patterns of all scripts of the process keep.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most of them.
const MAX_BYTES: usize = 512 << 20;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The bytes of one script, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Kept(usize);

impl Kept {
    /// `None` when there are not so many left.
    pub(super) fn reserve(bytes: usize) -> Option<Self> {
        let fits = |kept: usize| kept.checked_add(bytes).filter(|kept| *kept <= MAX_BYTES);
        // Relaxed, because threads agree on this number alone; no other memory is published by it.
        BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Self(bytes))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, MAX_BYTES};

    #[test]
    fn what_is_beyond_the_bound_of_the_process_is_refused_and_changes_nothing() {
        assert!(Kept::reserve(MAX_BYTES + 1).is_none());
        // Other tests reserve a little meanwhile.
        let half = Kept::reserve(MAX_BYTES / 2).expect("room");
        assert!(Kept::reserve(MAX_BYTES / 2 + 1).is_none());
        drop(half);
        assert!(Kept::reserve(MAX_BYTES / 2 + 1).is_some());
    }
}
