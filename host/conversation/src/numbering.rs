//! Numbers that tell turns and claims apart, also those of different processes.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// A number that no process has returned before. Each process counts from a random number. If all processes counted
/// from 1, two turns that different processes have handed over could be confused, because only their numbers differ.
pub(crate) fn next_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(Uuid::new_v4().as_u64_pair().0 >> 2));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::next_number;

    #[test]
    fn two_processes_do_not_count_from_the_same_number() {
        let number = next_number();
        assert!(number > u64::from(u32::MAX) && i64::try_from(number).is_ok(), "{number}");
        assert_ne!(next_number(), number);
    }
}
