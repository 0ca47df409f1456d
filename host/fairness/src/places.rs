//! The places, and those who wait for one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::line::Line;

/// A number of places. Clones share them.
#[derive(Clone, Debug)]
pub struct FairPlaces(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

/// As long as there is a free place nobody waits.
#[derive(Debug)]
struct State {
    free: usize,
    line: Line<oneshot::Sender<Place>>,
}

/// One place, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    /// `None` for one that somebody else has by now.
    places: Option<Arc<Shared>>,
}

impl FairPlaces {
    /// So many places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State { free: places, line: Line::default() }) }))
    }

    /// The places that are free now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.state().free
    }

    /// A place that is free now.
    #[must_use]
    pub fn try_take(&self) -> Option<Place> {
        let mut state = self.0.state();
        state.free = state.free.checked_sub(1)?;
        drop(state);
        Some(self.0.place())
    }

    /// Waits for a place. Whoever stops waiting leaves the line. The future has to be polled to its end, or dropped: a place that
    /// it was given is taken.
    pub async fn take(&self, tenant: &Arc<str>) -> Place {
        loop {
            let waiting = {
                let mut state = self.0.state();
                if let Some(free) = state.free.checked_sub(1) {
                    state.free = free;
                    break;
                }
                let (sender, waiting) = oneshot::channel();
                state.line.join(tenant, sender);
                waiting
            };
            // Whoever gives a place back hands it on, so that nobody who comes later takes it in between.
            if let Ok(place) = waiting.await {
                return place;
            }
        }
        self.0.place()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
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
                let next = state.line.take();
                if next.is_none() {
                    state.free += 1;
                    // It is counted, and must not be given back a second time.
                    place.places = None;
                }
                next
            };
            let Some(next) = next else { return };
            // Not under the lock. Whoever stopped waiting gives it back at once, and it goes to the next.
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
