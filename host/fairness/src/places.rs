//! Places, and the tasks that wait for places.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::tenant_queue::TenantQueue;

/// A limited number of places. Clones share the same places.
#[derive(Clone, Debug)]
pub struct FairPlaces(Arc<PlacePool>);

#[derive(Debug)]
struct PlacePool {
    state: Mutex<Occupancy>,
}

/// The free places and the waiters. If `free` is above 0, `queue` is empty.
#[derive(Debug)]
struct Occupancy {
    free: usize,
    queue: TenantQueue<oneshot::Sender<Place>>,
}

/// A taken place. Dropping this value passes the place on to the next waiter, or makes the place free.
#[derive(Debug)]
pub struct Place {
    /// The pool that the place belongs to. `None` after the place was passed on.
    places: Option<Arc<PlacePool>>,
}

impl FairPlaces {
    /// Creates a pool with this number of free places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(PlacePool { state: Mutex::new(Occupancy { free: places, queue: TenantQueue::default() }) }))
    }

    /// The number of free places.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.state().free
    }

    /// Takes a free place; `None` if no place is free.
    #[must_use]
    pub fn try_take(&self) -> Option<Place> {
        let mut state = self.0.state();
        state.free = state.free.checked_sub(1)?;
        drop(state);
        Some(self.0.place())
    }

    /// Waits for a place on behalf of `tenant`. Dropping the future leaves the queue. Poll the future or drop it,
    /// because it may already hold a place.
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
