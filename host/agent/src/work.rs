//! CPU work of agents. Large work runs on threads that serve no requests. All work is charged to the tenant.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use annex_fairness::{FairPlaces, current_tenant};
use futures::future::BoxFuture;
use tokio::task::{JoinError, spawn_blocking};

/// A limited number of threads for CPU work. Waiting tenants are served round robin.
pub(crate) type Places = LazyLock<FairPlaces>;

/// Threads for the work of turns.
pub(crate) static ANSWERING: Places = Places::new(all_cores_but_one);
/// Threads for compilation, when an agent is loaded or a config is checked. Turns use other threads, so that turns do
/// not delay the compilation.
pub(crate) static COMPILING: Places = Places::new(all_cores_but_one);

/// Creates one place fewer than the machine has cores, so that one core stays free for requests without such work.
/// There is always at least one place.
fn all_cores_but_one() -> FairPlaces {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    FairPlaces::new(cores.saturating_sub(1).max(1))
}

tokio::task_local! {
    static COUNTED: CpuTime;
}

/// Counts the CPU time of a tenant's agent. Clones share the count.
#[derive(Clone)]
pub struct CpuTime(Arc<dyn Fn(Duration) + Send + Sync>);

impl CpuTime {
    /// Creates a counter. At the end of each piece of work the counter calls `add` with the duration of the work.
    pub fn new(add: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(add))
    }

    fn since(&self, began: Instant) {
        (self.0)(began.elapsed());
    }
}

impl fmt::Debug for CpuTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CpuTime").finish_non_exhaustive()
    }
}

/// Wraps a future so that its CPU time is counted. This is the time of its polls and of its work on other threads.
pub fn counted<'a, T: 'a>(time: Option<CpuTime>, future: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
    match time {
        Some(time) => Box::pin(CountedFuture { time, future }),
        None => future,
    }
}

struct CountedFuture<'a, T> {
    time: CpuTime,
    future: BoxFuture<'a, T>,
}

impl<T> Future for CountedFuture<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let time = self.time.clone();
        let began = Instant::now();
        let polled = COUNTED.sync_scope(time.clone(), || self.future.as_mut().poll(context));
        time.since(began);
        polled
    }
}

/// Runs work on a thread that serves no requests, as soon as one is free. The work gets a function that returns true once the
/// caller was dropped. The work should then end.
///
/// # Errors
/// When the work panicked.
pub(crate) async fn aside<T: Send + 'static>(
    places: &Places,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let place = places.take(&current_tenant()).await;
    let time = COUNTED.try_with(CpuTime::clone).ok();
    let waiting = DropFlag::default();
    let is_over = Arc::clone(&waiting.0);
    let working = spawn_blocking(move || {
        let began = Instant::now();
        let done = work(&|| is_over.load(Ordering::Relaxed));
        if let Some(time) = time {
            time.since(began);
        }
        // The thread releases the place, not the caller: abandoned work may continue for a moment.
        drop(place);
        done
    });
    working.await
}

/// Sets the flag when this value is dropped.
#[derive(Default)]
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
