//! The limits on open event streams, in total and per caller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::A2aError;
use futures::stream::{Stream, StreamExt};

use crate::connections::network::CallerKey;

/// Counts the open streams.
pub(crate) struct Streams {
    /// The limit on the open streams of all callers together. A reload of the config changes this limit and the limit
    /// per caller.
    in_all: AtomicUsize,
    per_caller: AtomicUsize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    count: usize,
    by_caller: HashMap<CallerKey, usize>,
}

/// The place of one stream. Dropping this value frees the place.
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    caller: CallerKey,
}

impl Streams {
    pub(crate) fn new(in_all: usize, per_caller: usize) -> Arc<Self> {
        let (in_all, per_caller) = (AtomicUsize::new(in_all), AtomicUsize::new(per_caller));
        Arc::new(Self { in_all, per_caller, open: Mutex::default() })
    }

    /// Changes the limits. Open streams above a new limit stay.
    pub(crate) fn set(&self, in_all: usize, per_caller: usize) {
        self.in_all.store(in_all, Ordering::Relaxed);
        self.per_caller.store(per_caller, Ordering::Relaxed);
    }

    /// Takes a place for a stream of `caller`.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when no place is free.
    pub(crate) fn open(self: &Arc<Self>, caller: CallerKey) -> Result<StreamPlace, A2aError> {
        let (in_all, per_caller) = (self.in_all.load(Ordering::Relaxed), self.per_caller.load(Ordering::Relaxed));
        let mut open = self.lock();
        if open.count >= in_all {
            return Err(overloaded(format!("{in_all} streams are open already")));
        }
        let own = open.by_caller.entry(caller.clone()).or_default();
        // The bound is at least 1 (`config/bounds.rs`), so a refusal leaves no empty entry in the map.
        if *own >= per_caller {
            return Err(overloaded(format!("{per_caller} streams of yours are open already")));
        }
        *own += 1;
        open.count += 1;
        Ok(StreamPlace { streams: Arc::clone(self), caller })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wraps the stream, so that the place is freed when the stream ends.
pub(crate) fn during<S: Stream>(place: Option<StreamPlace>, stream: S) -> impl Stream<Item = S::Item> {
    // The closure owns the place, so dropping the stream frees it.
    stream.map(move |item| {
        let _open = &place;
        item
    })
}

fn overloaded(reason: String) -> A2aError {
    A2aError::Overloaded { reason }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.count -= 1;
        let Some(own) = open.by_caller.get_mut(&self.caller) else { return };
        *own -= 1;
        if *own == 0 {
            open.by_caller.remove(&self.caller);
        }
    }
}
