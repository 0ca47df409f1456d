//! The places and their waiters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::tenant_queue::TenantQueue;

/// A number of places. Clones share them.
#[derive(Clone, Debug)]
pub struct FairPlaces(Arc<PlacePool>);

#[derive(Debug)]
struct PlacePool {
    state: Mutex<Occupancy>,
}

/// If `free` is above 0, `queue` is empty.
#[derive(Debug)]
struct Occupancy {
    free: usize,
    queue: TenantQueue<oneshot::Sender<Place>>,
}

/// A taken place. Dropping it passes it on to the next waiter, or makes it free.
#[derive(Debug)]
pub struct Place {
    /// `None` after the place was passed on.
    places: Option<Arc<PlacePool>>,
}

impl FairPlaces {
    /// Creates `places` free places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(PlacePool { state: Mutex::new(Occupancy { free: places, queue: TenantQueue::default() }) }))
    }

    /// Number of free places.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.state().free
    }

    /// Takes a place if one is free.
    #[must_use]
    pub fn try_take(&self) -> Option<Place> {
        let mut state = self.0.state();
        state.free = state.free.checked_sub(1)?;
        drop(state);
        Some(self.0.place())
    }

    /// Waits for a place. Dropping the future leaves the queue. Do not keep the future without polling it: it may
    /// hold a place already.
    pub async fn take(&self, tenant: &Arc<str>) -> Place {
        loop {
            let waiting = {
                let mut state = self.0.state();
                if let Some(free) = state.free.checked_sub(1) {
                    state.free = free;
                    break;
                }
                let (sender, waiting) = oneshot::channel();
                state.queue.join(tenant, sender);
                waiting
            };
            // A returned place goes directly to the next waiter, so that a newcomer cannot take it in between.
            if let Ok(place) = waiting.await {
                return place;
            }
        }
        self.0.place()
    }
}

impl PlacePool {
    fn state(&self) -> MutexGuard<'_, Occupancy> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>) -> Place {
        Place { places: Some(Arc::clone(self)) }
    }

    fn give_back(self: &Arc<Self>) {
        let mut place = self.place();
        loop {
            let next = {
                let mut state = self.state();
                let next = state.queue.take();
                if next.is_none() {
                    state.free += 1;
                    // The place is counted as free, and dropping `place` must not count it again.
                    place.places = None;
                }
                next
            };
            let Some(next) = next else { return };
            // Sent without holding the lock. If the receiver is gone, the place goes to the next waiter.
            match next.send(place) {
                Ok(()) => return,
                Err(refused) => place = refused,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            places.give_back();
        }
    }
}
