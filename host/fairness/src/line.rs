//! The queue of waiters, by tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Serves tenants round robin, and the waiters of one tenant in order of arrival.
#[derive(Debug)]
pub(crate) struct Line<T> {
    /// Tenants with waiters, each once. The first is served next.
    turns: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<T>>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), waiting: HashMap::new() }
    }
}

impl<T> Line<T> {
    pub(crate) fn join(&mut self, tenant: &Arc<str>, waiter: T) {
        if let Some(waiting) = self.waiting.get_mut(tenant) {
            waiting.push_back(waiter);
        } else {
            // Behind all waiting tenants. Each is served once before this one.
            self.turns.push_back(Arc::clone(tenant));
            self.waiting.insert(Arc::clone(tenant), VecDeque::from([waiter]));
        }
    }

    /// Removes and returns the next waiter.
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

    use super::Line;

    #[test]
    fn tenants_are_taken_in_turn_and_each_in_the_order_of_its_own() {
        let mut line = Line::default();
        let [loud, quiet, late] = ["loud", "quiet", "late"].map(Arc::<str>::from);
        for number in 0..4 {
            line.join(&loud, format!("loud {number}"));
        }
        line.join(&quiet, "quiet 0".to_owned());
        assert_eq!(line.take().as_deref(), Some("loud 0"));
        line.join(&quiet, "quiet 1".to_owned());
        line.join(&late, "late 0".to_owned());
        let order: Vec<String> = std::iter::from_fn(|| line.take()).collect();
        assert_eq!(order, ["quiet 0", "loud 1", "late 0", "quiet 1", "loud 2", "loud 3"]);
        assert!(line.turns.is_empty() && line.waiting.is_empty(), "nothing is kept of tenants of which nobody waits");
    }
}
