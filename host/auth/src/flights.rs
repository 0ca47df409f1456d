//! Single flight: of all callers that need the outcome for one key, one begins a request, and all wait for its outcome.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::api_key::Digest;
use crate::token_cache::lock;

/// The requests that run now, at most one for each key.
pub(crate) struct Flights<T> {
    running: Mutex<HashMap<Digest, Flight<T>>>,
}

type Flight<T> = watch::Receiver<Option<T>>;

/// Removes a flight at its end, also after a panic.
struct Landing<T> {
    flights: Arc<Flights<T>>,
    key: Digest,
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        lock(&self.flights.running).remove(&self.key);
    }
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { running: Mutex::default() })
    }

    /// The outcome of the request for a key. If none runs, `begin` returns a new request, or the outcome without a request.
    /// It gets the number of requests for other keys.
    ///
    /// A request caches its outcome before it ends, so `begin` looks into the cache first. `None` only if the request has
    /// panicked.
    pub(crate) async fn outcome<F>(
        self: &Arc<Self>,
        key: Digest,
        begin: impl FnOnce(usize) -> Result<F, T>,
    ) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let joined = self.join(key, begin);
        match joined {
            Ok(mut flight) => {
                let landed = flight.wait_for(Option::is_some).await.ok();
                landed.and_then(|outcome| outcome.clone())
            }
            Err(outcome) => Some(outcome),
        }
    }

    /// Joins the request for a key, or begins one.
    ///
    /// # Errors
    /// The outcome, if there is no request.
    fn join<F>(self: &Arc<Self>, key: Digest, begin: impl FnOnce(usize) -> Result<F, T>) -> Result<Flight<T>, T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut running = lock(&self.running);
        if let Some(flight) = running.get(&key) {
            return Ok(flight.clone());
        }
        let request = begin(running.len())?;
        let (sender, flight) = watch::channel(None);
        running.insert(key, flight.clone());
        // Released first: a runtime that shuts down drops the task at once, and then its landing takes the lock.
        drop(running);
        let landing = Landing { flights: Arc::clone(self), key };
        // A task of its own: if the caller disconnects, others with the same key still get the outcome.
        tokio::spawn(async move {
            let outcome = request.await;
            drop(landing);
            sender.send_replace(Some(outcome));
        });
        Ok(flight)
    }
}
