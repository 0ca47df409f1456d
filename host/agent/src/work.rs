//! CPU work of agents. Large work is done by threads that serve no requests, and all of it counts for the tenant.

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

/// Places for work. Tenants that wait get them in turn.
pub(crate) type Places = LazyLock<FairPlaces>;

/// For the work of turns.
pub(crate) static ANSWERING: Places = Places::new(all_cores_but_one);
/// For what is compiled when an agent is loaded or a text is checked. Turns do not hold it up.
pub(crate) static COMPILING: Places = Places::new(all_cores_but_one);

/// One core is left for those who wait for no work of an agent.
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
    /// `add` is told of each piece of work when it is over.
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

/// The same future. The time for which it is on a thread counts, and that of the work which it has done aside.
pub fn counted<'a, T: 'a>(time: Option<CpuTime>, future: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
    match time {
        Some(time) => Box::pin(Counted { time, future }),
        None => future,
    }
}

struct Counted<'a, T> {
    time: CpuTime,
    future: BoxFuture<'a, T>,
}

impl<T> Future for Counted<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let time = self.time.clone();
        let began = Instant::now();
        let polled = COUNTED.sync_scope(time.clone(), || self.future.as_mut().poll(context));
        time.since(began);
        polled
    }
}

/// Does work on a thread that serves no requests, once there is a place. The work is given a function that turns true when its
/// caller has gone; it should end then.
///
/// # Errors
/// When it panicked.
pub(crate) async fn aside<T: Send + 'static>(
    places: &Places,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let place = places.take(&current_tenant()).await;
    let time = COUNTED.try_with(CpuTime::clone).ok();
    let waiting = Waiting::default();
    let is_over = Arc::clone(&waiting.0);
    let working = spawn_blocking(move || {
        let began = Instant::now();
        let done = work(&|| is_over.load(Ordering::Relaxed));
        if let Some(time) = time {
            time.since(began);
        }
        // The thread gives it back, not the caller: work that nobody waits for may go on for a moment.
        drop(place);
        done
    });
    working.await
}

/// Sets the flag when it is dropped.
#[derive(Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
