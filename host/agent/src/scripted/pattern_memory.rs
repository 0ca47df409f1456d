//! Limits the memory of the compiled patterns of all scripts in the process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum number of bytes that can be reserved in each [`Room`].
const MAX_BYTES: usize = 512 << 20;

/// The memory for the operator's scripts. Tenants' scripts do not use it.
pub(super) static OWN: Room = Room(AtomicUsize::new(0));
/// The memory for tenants' scripts. Each script gets an equal share.
pub(super) static SHARED: Room = Room(AtomicUsize::new(0));

/// A limited amount of memory. The value is the number of reserved bytes, which is at most [`MAX_BYTES`].
#[derive(Debug)]
pub(super) struct Room(AtomicUsize);

/// The reserved bytes of one script, released on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    bytes: usize,
    room: &'static Room,
}

/// The bytes for each script if `scripts` scripts must fit into one [`Room`] together.
pub(super) fn share(scripts: usize) -> usize {
    MAX_BYTES / scripts.max(1)
}

impl Room {
    /// Reserves bytes; `None` if too few are left.
    pub(super) fn reserve(&'static self, bytes: usize) -> Option<Reservation> {
        let fits = |kept: usize| kept.checked_add(bytes).filter(|kept| *kept <= MAX_BYTES);
        // Relaxed suffices, because threads share only this number and no other memory.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Reservation { bytes, room: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, OWN, SHARED, share};

    #[test]
    fn what_is_beyond_the_bound_of_the_process_is_refused_and_changes_nothing() {
        assert!(OWN.reserve(MAX_BYTES + 1).is_none());
        // Other tests reserve a little at the same time.
        let half = OWN.reserve(MAX_BYTES / 2).expect("room");
        assert!(OWN.reserve(MAX_BYTES / 2 + 1).is_none());
        assert!(SHARED.reserve(MAX_BYTES / 2 + 1).is_some(), "it is another room");
        drop(half);
        assert!(OWN.reserve(MAX_BYTES / 2 + 1).is_some());
    }

    #[test]
    fn there_is_room_for_the_shares_of_all() {
        for scripts in [1, 3, 1_000] {
            assert!(share(scripts) * scripts <= MAX_BYTES, "{scripts}");
        }
        assert!(share(0) <= MAX_BYTES);
        assert!(share(1_000) >= 512 << 10, "a thousand small scripts are loaded by default");
    }
}
