//! Budgets in bytes: how much memory of the process all callers together may use, and how much a single caller may use.
//!
//! A part is one request body or one unread answer. A new part of one caller cannot use up the memory of other callers.
//! If the new part does not fit, the caller with the most bytes loses its largest part. The bytes of an evicted part
//! are freed at once, even if the client has not read them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use annex_protocol::A2aError;
use bytes::Bytes;
use futures::task::AtomicWaker;

use crate::connections::network::CallerKey;

/// A limit on one kind of bytes, such as the bytes of unread answers.
pub(crate) struct Budget {
    /// What the bytes are, for error texts, such as `unread answers`.
    what: &'static str,
    bounds: Mutex<Bounds>,
    /// A part is evicted for a new part of the same caller only if the old part is more than `edge` times as large as
    /// the new part.
    edge: usize,
    state: Mutex<Allocations>,
}

/// The limits of a budget in bytes. A reload of the config changes them.
#[derive(Clone, Copy)]
struct Bounds {
    max: usize,
    /// The maximum size of all parts of one caller together, in bytes. A single part may be larger.
    share: usize,
}

#[derive(Default)]
struct Allocations {
    held: usize,
    /// The number for the next new part. Numbers are not used again.
    next: u64,
    callers: HashMap<CallerKey, CallerParts>,
}

/// The request bodies or unread answers of one caller that the budget counts, and their size.
#[derive(Default)]
struct CallerParts {
    bytes: usize,
    parts: HashMap<u64, Part>,
}

struct Part {
    bytes: usize,
    content: Arc<Content>,
}

/// The content of a part, shared between the budget and the part's holder.
#[derive(Default)]
struct Content {
    given_up: AtomicBool,
    holder: AtomicWaker,
    /// The data of an answer. Empty for a request body, whose reader has the data.
    data: Mutex<Bytes>,
}

/// One part of a caller's bytes. The budget counts the part until this value is dropped or the part is evicted.
pub(crate) struct Holding {
    budget: Arc<Budget>,
    caller: CallerKey,
    /// The number of the part. `None` before the first byte.
    number: Option<u64>,
    content: Arc<Content>,
}

impl Budget {
    pub(crate) fn new(what: &'static str, max: usize, share: usize) -> Arc<Self> {
        Self::of_edge(what, Bounds { max, share }, 1)
    }

    /// Like [`Budget::new`], but a new part of a caller evicts an old part of the same caller only if the old part is
    /// more than twice as large. Otherwise a client that reads one answer would lose this answer when it asks for the
    /// next one.
    pub(crate) fn lasting(what: &'static str, max: usize, share: usize) -> Arc<Self> {
        Self::of_edge(what, Bounds { max, share }, 2)
    }

    fn of_edge(what: &'static str, bounds: Bounds, edge: usize) -> Arc<Self> {
        Arc::new(Self { what, bounds: Mutex::new(bounds), edge, state: Mutex::default() })
    }

    /// Changes the limits. Existing parts stay until a new part needs room.
    pub(crate) fn set(&self, max: usize, share: usize) {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = Bounds { max, share };
    }

    fn bounds(&self) -> Bounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an empty part for the caller. [`Holding::grow`] adds bytes to the part.
    pub(crate) fn hold(self: &Arc<Self>, caller: CallerKey) -> Holding {
        Holding { budget: Arc::clone(self), caller, number: None, content: Arc::default() }
    }

    /// Checks that the budget would accept a new part of `bytes` bytes, but does not add one.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if the part would be refused.
    pub(crate) fn check(&self, caller: &CallerKey, bytes: usize) -> Result<(), A2aError> {
        // The lock is released after this check, so another part may take the room. `Holding::grow` then refuses this
        // one.
        let Bounds { max, share } = self.bounds();
        let state = self.lock();
        let own = state.callers.get(caller);
        let largest = own.into_iter().flat_map(|own| own.parts.values()).map(|part| part.bytes).max().unwrap_or(0);
        let own = own.map_or(0, |own| own.bytes).saturating_add(bytes);
        // The rules of `make_room`, for a part that does not exist yet.
        let is_beyond_share = own > share && own > bytes && largest <= bytes.saturating_mul(self.edge);
        let most = || state.callers.values().map(|held| held.bytes).max().unwrap_or(0);
        let is_beyond_all =
            state.held.saturating_add(bytes) > max && most() <= own && largest <= bytes.saturating_mul(self.edge);
        if is_beyond_share || is_beyond_all { Err(self.full()) } else { Ok(()) }
    }

    fn full(&self) -> A2aError {
        let what = self.what;
        let Bounds { max, share } = self.bounds();
        A2aError::Overloaded { reason: format!("{what} take {max} bytes in all and {share} of one caller at most") }
    }

    fn lock(&self) -> MutexGuard<'_, Allocations> {
        // A panic in one request must not end the counting for all others.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts parts until the remaining ones fit the limits. Returns false if the part `newest` was evicted.
    fn make_room(&self, state: &mut Allocations, caller: &CallerKey, newest: u64) -> bool {
        let Bounds { max, share } = self.bounds();
        // Each round removes a part or returns, so this ends.
        loop {
            let own = state.callers.get(caller);
            // A lone part may exceed the share, because one answer can be longer than a quarter of the budget.
            let is_beyond_share = own.is_some_and(|own| own.bytes > share && own.parts.len() > 1);
            let victim = if is_beyond_share {
                caller.clone()
            } else if state.held > max {
                // Among callers with equally many bytes the one that asks for more loses a part.
                let rank = |(key, held): &(&CallerKey, &CallerParts)| (held.bytes, *key == caller);
                let Some((key, _)) = state.callers.iter().max_by_key(rank) else { return false };
                key.clone()
            } else {
                return true;
            };
            let parts = state.callers.get(&victim).into_iter().flat_map(|held| &held.parts);
            let rank = |(number, part): &(&u64, &Part)| {
                // At equal size the newest part is evicted, so that it does not interrupt a transfer.
                if **number == newest { (part.bytes.saturating_mul(self.edge), true) } else { (part.bytes, false) }
            };
            let largest = parts.max_by_key(rank).map(|(number, _)| *number);
            let Some(largest) = largest else { return false };
            if let Some(part) = state.remove(&victim, largest) {
                part.content.give_up();
            }
            if largest == newest {
                return false;
            }
        }
    }

    /// The bytes of all parts together.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.lock().held
    }
}

impl Allocations {
    fn remove(&mut self, caller: &CallerKey, number: u64) -> Option<Part> {
        let held = self.callers.get_mut(caller)?;
        let part = held.parts.remove(&number)?;
        held.bytes -= part.bytes;
        self.held -= part.bytes;
        // Callers that hold nothing are forgotten. Otherwise the addresses of all who ever called would fill the map.
        if held.parts.is_empty() {
            self.callers.remove(caller);
        }
        Some(part)
    }
}

impl Content {
    fn give_up(&self) {
        // The flag is set before the data are taken. A reader that finds no data then sees the eviction, and does not
        // take the answer as complete.
        self.given_up.store(true, Ordering::Release);
        drop(std::mem::take(&mut *self.data()));
        self.holder.wake();
    }

    fn data(&self) -> MutexGuard<'_, Bytes> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding {
    /// Adds `bytes` bytes to the part.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if this part was evicted, before or because of this call.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), A2aError> {
        if self.is_given_up() {
            return Err(self.budget.full());
        }
        let mut state = self.budget.lock();
        let number = self.number.unwrap_or(state.next);
        if self.number.is_none() {
            state.next += 1;
            self.number = Some(number);
        } else if !state.callers.get(&self.caller).is_some_and(|held| held.parts.contains_key(&number)) {
            // The part was evicted between the check above and the lock.
            return Err(self.budget.full());
        }
        let held = state.callers.entry(self.caller.clone()).or_default();
        let content = &self.content;
        let part = held.parts.entry(number).or_insert_with(|| Part { bytes: 0, content: Arc::clone(content) });
        // The bytes are counted before room is made, so that this part can be evicted like any other.
        part.bytes += bytes;
        held.bytes += bytes;
        state.held += bytes;
        if self.budget.make_room(&mut state, &self.caller, number) { Ok(()) } else { Err(self.budget.full()) }
    }

    /// Stores the data in the part and counts the bytes. An eviction of the part frees the data.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if this part was evicted, before or because of this call.
    pub(crate) fn keep(&mut self, data: Bytes) -> Result<(), A2aError> {
        let bytes = data.len();
        // The data are stored before they are counted, so that an eviction by `grow` frees them. The lock on the data
        // is released before the budget is locked, because `make_room` takes the two locks in the opposite order.
        *self.content.data() = data;
        self.grow(bytes)
    }

    /// Removes and returns the next bytes of the data, at most `bytes`. `None` at the end of the data. The result is a
    /// copy: a slice that hyper has not sent yet would keep all data of a long answer in memory.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if the part was evicted.
    pub(crate) fn take(&self, bytes: usize) -> Result<Option<Bytes>, A2aError> {
        // The data are locked before the flag is read. An eviction between the two steps would look like the end of the
        // answer.
        let mut data = self.content.data();
        if self.is_given_up() {
            return Err(self.budget.full());
        }
        let length = data.len().min(bytes);
        let taken = data.split_to(length);
        Ok((length > 0).then(|| Bytes::copy_from_slice(&taken)))
    }

    /// The number of bytes that [`Holding::take`] has not returned yet.
    pub(crate) fn left(&self) -> usize {
        self.content.data().len()
    }

    /// True if the part was evicted. If the part is evicted later, the task of `context` is woken.
    pub(crate) fn poll_given_up(&self, context: &Context<'_>) -> bool {
        // The waker is registered before the flag is read, so that an eviction between the two steps wakes the task.
        self.content.holder.register(context.waker());
        self.is_given_up()
    }

    /// The error for the holder of an evicted part.
    pub(crate) fn error(&self) -> A2aError {
        self.budget.full()
    }

    fn is_given_up(&self) -> bool {
        // This pairs with the `Release` of `Content::give_up`.
        self.content.given_up.load(Ordering::Acquire)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // An evicted part has been removed already. The number of a part is never used again.
            drop(self.budget.lock().remove(&self.caller, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{Budget, Holding};
    use crate::connections::network::CallerKey;

    fn caller(name: &str) -> CallerKey {
        CallerKey::Principal(name.to_owned())
    }

    fn hold(budget: &Arc<Budget>, name: &str, bytes: usize) -> Option<Holding> {
        let mut holding = budget.hold(caller(name));
        holding.grow(bytes).ok().map(|()| holding)
    }

    #[test]
    fn the_caller_that_holds_most_gives_way_with_its_largest_part() {
        let budget = Budget::new("bytes", 100, 60);
        let large: Vec<_> = [30, 20, 10].map(|bytes| hold(&budget, "greedy", bytes).expect("room")).into();
        let small = hold(&budget, "other", 30).expect("room");
        let modest = hold(&budget, "modest", 25).expect("room at the expense of the greedy");
        let given_up: Vec<_> = large.iter().map(Holding::is_given_up).collect();
        assert_eq!(given_up, [true, false, false]);
        assert!(!small.is_given_up() && !modest.is_given_up());
        assert_eq!(budget.held(), 85);
        drop((large, small, modest));
        assert_eq!(budget.held(), 0);
        assert!(budget.lock().callers.is_empty(), "callers that hold nothing are forgotten");
    }

    #[test]
    fn a_caller_that_would_hold_most_itself_is_refused_and_disturbs_nobody() {
        let budget = Budget::new("bytes", 100, 60);
        let first = hold(&budget, "a", 50).expect("room");
        let second = hold(&budget, "b", 40).expect("room");
        assert!(hold(&budget, "c", 60).is_none());
        assert!(!first.is_given_up() && !second.is_given_up());
        assert_eq!(budget.held(), 90);
    }

    #[test]
    fn beyond_its_share_a_caller_loses_its_own_largest_part() {
        let budget = Budget::new("bytes", 1_000, 60);
        let large = hold(&budget, "a", 50).expect("room");
        let other = hold(&budget, "b", 55).expect("room");
        let small = hold(&budget, "a", 20).expect("room of its own");
        assert!(large.is_given_up() && !small.is_given_up() && !other.is_given_up());
        assert!(hold(&budget, "a", 45).is_none(), "the new part is the largest");
        assert!(!small.is_given_up());
        assert!(hold(&budget, "c", 90).is_some(), "a lone part may be larger");
        assert!(hold(&budget, "c", 1_001).is_none());
    }

    #[test]
    fn where_parts_last_one_gives_way_to_the_callers_next_only_if_it_is_twice_as_large() {
        let budget = Budget::lasting("bytes", 1_000, 60);
        let first = hold(&budget, "a", 50).expect("room");
        assert!(hold(&budget, "a", 49).is_none() && hold(&budget, "a", 25).is_none());
        assert!(!first.is_given_up());
        assert!(hold(&budget, "a", 24).is_some());
        assert!(first.is_given_up());
    }

    #[test]
    fn a_part_that_was_given_up_does_not_grow_again() {
        let budget = Budget::new("bytes", 100, 60);
        let mut large = hold(&budget, "a", 50).expect("room");
        let _small = hold(&budget, "a", 20).expect("room");
        large.grow(1).expect_err("it is gone");
        assert_eq!(budget.held(), 20);
    }

    #[test]
    fn what_is_kept_is_gone_when_it_is_given_up() {
        let budget = Budget::new("bytes", 100, 60);
        let mut long = budget.hold(caller("a"));
        long.keep(Bytes::from(vec![1; 50])).expect("room");
        assert_eq!(long.take(10).expect("kept").expect("data").len(), 10);
        let _other = hold(&budget, "a", 20).expect("room");
        assert_eq!(long.left(), 0);
        long.take(10).expect_err("it is gone");
    }

    #[test]
    fn the_look_ahead_says_what_will_happen() {
        for (held, wanted) in [(Some(50), 20), (Some(50), 55), (None, 90), (None, 91), (None, 101)] {
            let budget = Budget::new("bytes", 100, 60);
            let _held = held.map(|held| hold(&budget, "a", held));
            let _other = hold(&budget, "b", 10);
            let expected = budget.check(&caller("a"), wanted).is_ok();
            assert_eq!(hold(&budget, "a", wanted).is_some(), expected, "{held:?} and {wanted}");
        }
    }

    #[test]
    fn unfinished_parts_of_many_callers_never_take_more_than_the_budget() {
        let budget = Budget::new("bytes", 1_000, 250);
        let mut holdings: Vec<_> = (0..40).map(|number| budget.hold(caller(&(number % 7).to_string()))).collect();
        for round in 0..200 {
            for holding in &mut holdings {
                let _ = holding.grow(1 + round % 13);
                assert!(budget.held() <= 1_000);
            }
        }
    }
}
