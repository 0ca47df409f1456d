//! The bounds on streams of events that are open at once, in all and per caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::A2aError;
use futures::stream::{Stream, StreamExt};

use crate::connections::network::CallerKey;

/// The streams that are open.
pub(crate) struct Streams {
    in_all: usize,
    per_caller: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    count: usize,
    by_caller: HashMap<CallerKey, usize>,
}

/// The place of one stream, free again when this is dropped.
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    caller: CallerKey,
}

impl Streams {
    pub(crate) fn new(in_all: usize, per_caller: usize) -> Arc<Self> {
        Arc::new(Self { in_all, per_caller, open: Mutex::default() })
    }

    /// Takes a place.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is none.
    pub(crate) fn open(self: &Arc<Self>, caller: CallerKey) -> Result<StreamPlace, A2aError> {
        let mut open = self.lock();
        if open.count >= self.in_all {
            return Err(overloaded(format!("{} streams are open already", self.in_all)));
        }
        let own = open.by_caller.entry(caller.clone()).or_default();
        // The bound is at least 1 (`config/bounds.rs`), so a refusal leaves no empty entry in the map.
        if *own >= self.per_caller {
            return Err(overloaded(format!("{} streams of yours are open already", self.per_caller)));
        }
        *own += 1;
        open.count += 1;
        Ok(StreamPlace { streams: Arc::clone(self), caller })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamPlace {
    /// The stream, with this place until it is over.
    pub(crate) fn during<S: Stream>(self, stream: S) -> impl Stream<Item = S::Item> {
        // The closure owns the place, which is free again when the stream is dropped.
        stream.map(move |item| {
            let _open = &self;
            item
        })
    }
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
