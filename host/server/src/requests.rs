//! The last requests of the server, for the admin API and the console.
//!
//! The access log adds each finished request with its measured times. Adding a request takes one short lock. A request is
//! formatted only when a reader asks for it. The number of requests and the size of each request are bounded.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

mod filter;
mod record;

pub(crate) use filter::{RequestFilter, VisibleRequests};
pub(crate) use record::{End, RequestRecord};

/// The maximum number of listeners that get new requests at the same time.
pub(crate) const MAX_LISTENERS: usize = 16;
/// The number of new requests that wait for a listener. A slow listener misses the oldest of more requests.
const MAX_WAITING: usize = 256;

/// The last requests, in a ring: a new request replaces the oldest one.
pub(crate) struct RecentRequests {
    slots: Box<[Mutex<Option<Arc<RequestRecord>>>]>,
    /// The number of the next request. The first one is 1.
    next: AtomicU64,
    live: broadcast::Sender<Arc<RequestRecord>>,
    listeners: Arc<AtomicUsize>,
}

impl RecentRequests {
    /// A ring of `size` requests. A ring without a place keeps nothing.
    pub(crate) fn new(size: usize) -> Arc<Self> {
        let slots = std::iter::repeat_with(|| Mutex::new(None)).take(size).collect();
        let (live, _) = broadcast::channel(MAX_WAITING);
        Arc::new(Self { slots, next: AtomicU64::new(1), live, listeners: Arc::default() })
    }

    /// True if requests are kept.
    pub(crate) fn is_on(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Adds a finished request, and gives it the next number.
    pub(crate) fn add(&self, mut record: RequestRecord) {
        if !self.is_on() {
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        record.number = number;
        let record = Arc::new(record);
        if self.listeners.load(Ordering::Relaxed) > 0 {
            // Fails if the last listener has just gone.
            let _ = self.live.send(Arc::clone(&record));
        }
        let Some(mut slot) = self.slot(number) else { return };
        // Another thread may have gone around the whole ring meanwhile.
        if slot.as_ref().is_none_or(|other| other.number < number) {
            let replaced = slot.replace(record);
            drop(slot);
            drop(replaced);
        }
    }

    /// The request with this number, if it is still kept and `visible`.
    pub(crate) fn find(&self, number: u64, visible: &VisibleRequests) -> Option<Arc<RequestRecord>> {
        let found = self.slot(number)?.clone()?;
        (found.number == number && visible.shows(&found)).then_some(found)
    }

    /// The kept requests that match, the newest first, at most `limit`. Starts behind the request `before`, if given.
    pub(crate) fn list(
        &self,
        filter: &RequestFilter,
        visible: &VisibleRequests,
        (before, limit): (Option<u64>, usize),
    ) -> Vec<Arc<RequestRecord>> {
        let next = self.next.load(Ordering::Relaxed);
        let oldest = next.saturating_sub(self.slots.len() as u64).max(1);
        let until = before.map_or(next, |before| before.min(next));
        let numbers = (oldest..until).rev();
        let found = numbers.filter_map(|number| self.find(number, visible).filter(|found| filter.matches(found)));
        found.take(limit).collect()
    }

    /// Listens to new requests. `None` if there are [`MAX_LISTENERS`] listeners already.
    pub(crate) fn listen(&self) -> Option<Listener> {
        let listeners = Arc::clone(&self.listeners);
        let one_more = |count: usize| (count < MAX_LISTENERS).then_some(count + 1);
        listeners.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Listener { live: self.live.subscribe(), _place: ListenerSlot(listeners) })
    }

    /// The slot of a number. `None` if there are no slots.
    fn slot(&self, number: u64) -> Option<MutexGuard<'_, Option<Arc<RequestRecord>>>> {
        let index = number.checked_rem(self.slots.len() as u64)?;
        let slot = self.slots.get(usize::try_from(index).ok()?)?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One message to a listener.
pub(crate) enum News {
    /// A request has ended.
    Request(Arc<RequestRecord>),
    /// The listener was too slow and has missed so many requests.
    Missed(u64),
}

/// A reader of new requests. Its queue has at most [`MAX_WAITING`] requests.
pub(crate) struct Listener {
    live: broadcast::Receiver<Arc<RequestRecord>>,
    _place: ListenerSlot,
}

impl Listener {
    /// Waits for the next request. `None` if the server ends.
    pub(crate) async fn next(&mut self) -> Option<News> {
        match self.live.recv().await {
            Ok(record) => Some(News::Request(record)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(News::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The place of a listener. Dropping it frees the place.
struct ListenerSlot(Arc<AtomicUsize>);

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
