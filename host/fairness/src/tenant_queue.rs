//! The queue of waiters, grouped by tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A queue that serves tenants in rotation, and the waiters of one tenant in order of arrival.
#[derive(Debug)]
pub(crate) struct TenantQueue<T> {
    /// The tenants that have waiters, each once. The first tenant is served next.
    turns: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<T>>,
}

impl<T> Default for TenantQueue<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), waiting: HashMap::new() }
    }
}

impl<T> TenantQueue<T> {
    pub(crate) fn join(&mut self, tenant: &Arc<str>, waiter: T) {
        if let Some(waiting) = self.waiting.get_mut(tenant) {
            waiting.push_back(waiter);
        } else {
            // Behind all waiting tenants. Each is served once before this one.
            self.turns.push_back(Arc::clone(tenant));
            self.waiting.insert(Arc::clone(tenant), VecDeque::from([waiter]));
        }
    }

    /// Removes the waiter that is served next, and returns it.
    pub(crate) fn take(&mut self) -> Option<T> {
        let tenant = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&tenant)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::TenantQueue;

    #[test]
    fn tenants_are_taken_in_turn_and_each_in_the_order_of_its_own() {
        let mut queue = TenantQueue::default();
        let [loud, quiet, late] = ["loud", "quiet", "late"].map(Arc::<str>::from);
        for number in 0..4 {
            queue.join(&loud, format!("loud {number}"));
        }
        queue.join(&quiet, "quiet 0".to_owned());
        assert_eq!(queue.take().as_deref(), Some("loud 0"));
        queue.join(&quiet, "quiet 1".to_owned());
        queue.join(&late, "late 0".to_owned());
        let order: Vec<String> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(order, ["quiet 0", "loud 1", "late 0", "quiet 1", "loud 2", "loud 3"]);
        assert!(queue.turns.is_empty() && queue.waiting.is_empty(), "nothing is kept of tenants of which nobody waits");
    }
}
