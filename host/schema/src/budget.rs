//! Bytes that are kept for strangers, counted before they are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that may be kept at once, and of another budget that it is a part of.
#[derive(Debug)]
pub struct ValidatorBudget {
    limit: usize,
    used: AtomicUsize,
    whole: Option<Arc<ValidatorBudget>>,
}

impl ValidatorBudget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), whole: None })
    }

    /// A budget of at most `limit` bytes, which count in this one too.
    #[must_use]
    pub fn part(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), whole: Some(Arc::clone(self)) })
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes here and in the budget that this is a part of; `None` when there are not so many left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.reserve(bytes)?)),
            None => None,
        };
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        // When there is no room here, dropping the reservation of the whole gives its bytes back.
        // Relaxed, because threads agree on this number alone; no other memory is published by it.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Reservation { budget: Arc::clone(self), bytes, _whole: whole })
    }
}

/// Bytes of a budget, given back when this is dropped.
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
    fn what_a_part_reserves_counts_in_the_whole_until_it_is_dropped() {
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
