//! Memory budgets. The memory of a validator is reserved in a budget before it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A budget of bytes. It can be a part of a larger budget.
#[derive(Debug)]
pub struct ValidatorBudget {
    limit: usize,
    used: AtomicUsize,
    whole: Option<Arc<ValidatorBudget>>,
}

impl ValidatorBudget {
    /// Creates a budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), whole: None })
    }

    /// Creates a part of at most `limit` bytes. Its reservations also count in this budget.
    #[must_use]
    pub fn part(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), whole: Some(Arc::clone(self)) })
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes in this budget, and also in the larger budget if this is a part. `None` if either has too few
    /// bytes left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.reserve(bytes)?)),
            None => None,
        };
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        // If there is no room here, dropping the reservation of the larger budget frees its bytes.
        // Relaxed: threads agree on this number alone; no other memory is published with it.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Reservation { budget: Arc::clone(self), bytes, _whole: whole })
    }
}

/// Reserved bytes. Dropping this value frees the bytes.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ValidatorBudget>,
    bytes: usize,
    _whole: Option<Box<Reservation>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::ValidatorBudget;

    #[test]
    fn reservations_of_a_part_count_in_the_whole_until_dropped() {
        let whole = ValidatorBudget::new(10);
        let one = whole.part(8);
        let other = whole.part(8);
        assert!(one.reserve(9).is_none(), "more than the part has");
        assert_eq!(whole.used(), 0, "what is refused reserves nothing");
        let reserved = one.reserve(8).expect("room");
        assert!(other.reserve(3).is_none(), "more than the whole has left");
        assert_eq!(other.used(), 0);
        drop(reserved);
        assert!(other.reserve(3).is_some());
        assert_eq!((one.used(), whole.used()), (0, 0));
    }
}
