//! The parking of idle instances, and its limits. Each parked instance holds a slot in the engine's pool. Therefore
//! only few instances are parked. They are dropped after a while, and give way to a turn that needs a slot.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Idle time after which a parked instance is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of consecutive instances that must grow before an installation stops keeping instances. Most of its further
/// instances would grow too.
const MAX_GROWN: usize = 16;

/// Interval between two clean-ups.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// The idle instances of one installation.
pub(crate) struct Parking<I> {
    parked: Mutex<VecDeque<ParkedInstance<I>>>,
    /// Number of instances that serve a turn now. `most_now` is the maximum of this number since the last clean-up.
    /// `most_before` is the maximum of this number in the interval that ended with the last clean-up.
    in_use: Arc<AtomicUsize>,
    most_now: AtomicUsize,
    most_before: AtomicUsize,
    /// Number of instances that grew in their turn since an instance was last parked.
    grown: AtomicUsize,
    all: Arc<AllParked>,
}

struct ParkedInstance<I> {
    since: Instant,
    instance: I,
}

impl<I: Send + 'static> Parking<I> {
    pub(crate) fn new(all: &Arc<AllParked>) -> Arc<Self> {
        let parking = Arc::new(Self {
            parked: Mutex::default(),
            in_use: Arc::default(),
            most_now: AtomicUsize::new(0),
            most_before: AtomicUsize::new(0),
            grown: AtomicUsize::new(0),
            all: Arc::clone(all),
        });
        let joining: Arc<dyn GiveWay> = Arc::<Self>::clone(&parking);
        all.join(&joining);
        parking
    }
}

impl<I> Parking<I> {
    /// True if one more instance may be parked. Check this before resetting an instance.
    pub(crate) fn has_room(&self) -> bool {
        let is_hopeless = self.grown.load(Ordering::Relaxed) >= MAX_GROWN;
        !is_hopeless && self.lock().len() < self.most() && self.all.has_room()
    }

    /// Called when an instance has grown in its turn, so that it cannot be kept.
    pub(crate) fn note_grown(&self) {
        if self.grown.fetch_add(1, Ordering::Relaxed) + 1 == MAX_GROWN {
            tracing::warn!("an extension's instances are no longer kept, because they grow during turns");
        }
    }

    /// Takes the most recently parked instance, because its memory is most likely in the caches of the processor.
    /// Preferring instances of the same thread would bring no gain, as measured.
    pub(crate) fn take(&self) -> Option<I> {
        let parked = self.lock().pop_back()?;
        self.all.count.fetch_sub(1, Ordering::SeqCst);
        Some(parked.instance)
    }

    /// Parks an instance. Drops it if there is no room, or if a turn waits for a slot.
    pub(crate) fn park(&self, instance: I) {
        // The instance is counted before a turn can take it, so that the count never falls below zero.
        if self.all.count.fetch_add(1, Ordering::SeqCst) >= self.all.most {
            self.all.count.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        self.grown.store(0, Ordering::Relaxed);
        self.lock().push_back(ParkedInstance { since: Instant::now(), instance });
        // A waiting turn increments `waiting` before it looks here, so one of the two notices the other.
        if self.all.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.take());
        }
    }

    /// Counts an instance as in use until the returned guard is dropped.
    pub(crate) fn enter(&self) -> InUse {
        let used = self.in_use.fetch_add(1, Ordering::Relaxed) + 1;
        if self.most_now.load(Ordering::Relaxed) < used {
            self.most_now.fetch_max(used, Ordering::Relaxed);
        }
        InUse(Arc::clone(&self.in_use))
    }

    /// Maximum number of parked instances of the installation: the number of cores, or the recent maximum of instances
    /// in use if that is larger.
    fn most(&self) -> usize {
        let lately = self.most_now.load(Ordering::Relaxed).max(self.most_before.load(Ordering::Relaxed));
        self.all.cores.max(lately)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ParkedInstance<I>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parked instances of any type.
trait GiveWay: Send + Sync {
    /// Drops the instance that was parked first. Returns true if there was one.
    fn give_up_one(&self) -> bool;

    /// Drops instances above the maximum, and instances that were idle for too long.
    fn tidy(&self, now: Instant);
}

impl<I: Send> GiveWay for Parking<I> {
    fn give_up_one(&self) -> bool {
        let given_up = self.lock().pop_front();
        if given_up.is_some() {
            self.all.count.fetch_sub(1, Ordering::SeqCst);
        }
        given_up.is_some()
    }

    fn tidy(&self, now: Instant) {
        let used = self.in_use.load(Ordering::Relaxed);
        self.most_before.store(self.most_now.swap(used, Ordering::Relaxed), Ordering::Relaxed);
        let most = self.most();
        let mut left = Vec::new();
        {
            let mut parked = self.lock();
            // The front has been parked for longest.
            while let Some(first) = parked.front() {
                let is_late = now.saturating_duration_since(first.since) >= IDLE_TIMEOUT;
                if !is_late && parked.len() <= most {
                    break;
                }
                left.extend(parked.pop_front());
            }
        }
        self.all.count.fetch_sub(left.len(), Ordering::SeqCst);
        // Dropped without holding the lock: freeing an instance takes microseconds.
        drop(left);
    }
}

impl<I> Drop for Parking<I> {
    fn drop(&mut self) {
        let parked = mem::take(&mut *self.lock());
        self.all.count.fetch_sub(parked.len(), Ordering::SeqCst);
    }
}

/// Counts an instance as in use until this value is dropped.
pub(crate) struct InUse(Arc<AtomicUsize>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The parked instances of the process.
pub(crate) struct AllParked {
    installations: Mutex<Vec<Weak<dyn GiveWay>>>,
    count: AtomicUsize,
    /// Maximum number of parked instances in the process.
    most: usize,
    /// Number of turns that wait for a slot in the pool.
    waiting: AtomicUsize,
    cores: usize,
    /// True if the clean-up thread runs.
    is_tidied: AtomicBool,
}

impl AllParked {
    /// Creates the limits for a pool of `instances`. At most a quarter of the instances may be parked, but always at
    /// least one.
    pub(crate) fn new(instances: usize) -> Arc<Self> {
        Arc::new(Self {
            installations: Mutex::default(),
            count: AtomicUsize::new(0),
            most: (instances / 4).max(1),
            waiting: AtomicUsize::new(0),
            cores: thread::available_parallelism().map_or(1, usize::from),
            is_tidied: AtomicBool::new(false),
        })
    }

    fn has_room(&self) -> bool {
        self.count.load(Ordering::SeqCst) < self.most && self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Counts a turn as waiting for a slot until the returned guard is dropped.
    pub(crate) fn wait(self: &Arc<Self>) -> WaitingTurn {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        WaitingTurn(Arc::clone(self))
    }

    /// Drops one parked instance of any installation. Returns true if there was one.
    pub(crate) fn give_up_one(&self) -> bool {
        // Without parked instances this takes no lock.
        self.count.load(Ordering::SeqCst) > 0 && self.each().iter().any(|parking| parking.give_up_one())
    }

    fn each(&self) -> Vec<Arc<dyn GiveWay>> {
        let mut installations = self.installations.lock().unwrap_or_else(PoisonError::into_inner);
        installations.retain(|parking| parking.strong_count() > 0);
        // Dropped without holding the lock, including an installation that ends just now.
        installations.iter().filter_map(Weak::upgrade).collect()
    }

    fn join(self: &Arc<Self>, parking: &Arc<dyn GiveWay>) {
        let mut installations = self.installations.lock().unwrap_or_else(PoisonError::into_inner);
        installations.push(Arc::downgrade(parking));
        drop(installations);
        if !self.is_tidied.swap(true, Ordering::Relaxed) {
            let all = Arc::downgrade(self);
            let tidying = thread::Builder::new().name("annex-kept".to_owned()).spawn(move || tidy(&all));
            // Without the thread, idle instances stay until a turn needs their slots.
            if let Err(error) = tidying {
                tracing::warn!(%error, "kept instances are not dropped when idle");
            }
        }
    }
}

/// Counts a turn as waiting for a slot until this value is dropped.
pub(crate) struct WaitingTurn(Arc<AllParked>);

impl Drop for WaitingTurn {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The clean-up thread. It ends with the last runtime.
fn tidy(all: &Weak<AllParked>) {
    while let Some(parkings) = all.upgrade().map(|all| all.each()) {
        let now = Instant::now();
        parkings.iter().for_each(|parking| parking.tidy(now));
        drop(parkings);
        thread::sleep(CLEANUP_INTERVAL);
    }
}
