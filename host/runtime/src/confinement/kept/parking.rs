//! Where kept instances wait for their next turn, and how many may. Each holds a place in the engine's pool, so they are
//! few, leave after a while, and give way to a turn that finds no place.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The time after which an instance that nobody needed leaves.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many instances one after the other that grew say that the next ones will: keeping would only cost.
const HOPELESS: usize = 16;

/// How often is looked for those.
const ROUND: Duration = Duration::from_secs(1);

/// The instances of one installation that wait.
pub(crate) struct Parking<I> {
    parked: Mutex<VecDeque<Parked<I>>>,
    /// Instances that serve a turn, and the most of them at once, in this round and in the one before it.
    in_use: Arc<AtomicUsize>,
    most_now: AtomicUsize,
    most_before: AtomicUsize,
    /// Instances that grew in their turn since one last waited.
    grown: AtomicUsize,
    all: Arc<AllParked>,
}

struct Parked<I> {
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
    /// True when one more may wait. No instance is put back for nothing.
    pub(crate) fn has_room(&self) -> bool {
        let is_hopeless = self.grown.load(Ordering::Relaxed) >= HOPELESS;
        !is_hopeless && self.lock().len() < self.most() && self.all.has_room()
    }

    /// Notes that an instance has grown in its turn, and so cannot wait for another.
    pub(crate) fn note_grown(&self) {
        if self.grown.fetch_add(1, Ordering::Relaxed) + 1 == HOPELESS {
            tracing::warn!("no instance of an extension is kept any more, because they grow in their turns");
        }
    }

    /// The one that came last: its memory is the warmest. One that served this very thread is no warmer: measured.
    pub(crate) fn take(&self) -> Option<I> {
        let parked = self.lock().pop_back()?;
        self.all.count.fetch_sub(1, Ordering::SeqCst);
        Some(parked.instance)
    }

    /// Lets an instance wait. One for which there is no room is dropped, and so is one if a turn waits for its place.
    pub(crate) fn park(&self, instance: I) {
        // Counted before it can be found, so that the count never falls below zero.
        if self.all.count.fetch_add(1, Ordering::SeqCst) >= self.all.most {
            self.all.count.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        self.grown.store(0, Ordering::Relaxed);
        self.lock().push_back(Parked { since: Instant::now(), instance });
        // A turn says that it waits before it looks here: one of the two sees the other.
        if self.all.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.take());
        }
    }

    /// Notes that an instance of this installation serves a turn, until what is returned is dropped.
    pub(crate) fn enter(&self) -> InUse {
        let used = self.in_use.fetch_add(1, Ordering::Relaxed) + 1;
        if self.most_now.load(Ordering::Relaxed) < used {
            self.most_now.fetch_max(used, Ordering::Relaxed);
        }
        InUse(Arc::clone(&self.in_use))
    }

    /// As many as there are cores, or as served at once lately.
    fn most(&self) -> usize {
        let lately = self.most_now.load(Ordering::Relaxed).max(self.most_before.load(Ordering::Relaxed));
        self.all.cores.max(lately)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Parked<I>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Instances that wait, of whichever kind.
trait GiveWay: Send + Sync {
    /// Gives up one that waits, the one that has waited longest. Returns true if there was one.
    fn give_up_one(&self) -> bool;

    /// Drops those that are too many or have waited too long.
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
            // Those at the front have waited longest.
            while let Some(first) = parked.front() {
                let is_late = now.saturating_duration_since(first.since) >= PATIENCE;
                if !is_late && parked.len() <= most {
                    break;
                }
                left.extend(parked.pop_front());
            }
        }
        self.all.count.fetch_sub(left.len(), Ordering::SeqCst);
        // Dropped without the lock: freeing an instance takes microseconds.
        drop(left);
    }
}

impl<I> Drop for Parking<I> {
    fn drop(&mut self) {
        let parked = mem::take(&mut *self.lock());
        self.all.count.fetch_sub(parked.len(), Ordering::SeqCst);
    }
}

/// One instance that serves a turn.
pub(crate) struct InUse(Arc<AtomicUsize>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The instances of the process that wait.
pub(crate) struct AllParked {
    installations: Mutex<Vec<Weak<dyn GiveWay>>>,
    count: AtomicUsize,
    /// The most of them.
    most: usize,
    /// Turns that wait for a place in the pool.
    waiting: AtomicUsize,
    cores: usize,
    /// True when the thread that tidies runs.
    is_tidied: AtomicBool,
}

impl AllParked {
    /// For a pool with room for so many instances: a quarter of them may wait, and one in any case.
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

    /// Notes that a turn waits for a place, until what is returned is dropped.
    pub(crate) fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(Arc::clone(self))
    }

    /// Gives up one instance, of whichever installation. Returns true if there was one.
    pub(crate) fn give_up_one(&self) -> bool {
        // None is parked where nobody keeps any, which costs no lock.
        self.count.load(Ordering::SeqCst) > 0 && self.each().iter().any(|parking| parking.give_up_one())
    }

    fn each(&self) -> Vec<Arc<dyn GiveWay>> {
        let mut installations = self.installations.lock().unwrap_or_else(PoisonError::into_inner);
        installations.retain(|parking| parking.strong_count() > 0);
        // Instances are dropped without the lock, and so is an installation that ends just now.
        installations.iter().filter_map(Weak::upgrade).collect()
    }

    fn join(self: &Arc<Self>, parking: &Arc<dyn GiveWay>) {
        let mut installations = self.installations.lock().unwrap_or_else(PoisonError::into_inner);
        installations.push(Arc::downgrade(parking));
        drop(installations);
        if !self.is_tidied.swap(true, Ordering::Relaxed) {
            let all = Arc::downgrade(self);
            let tidying = thread::Builder::new().name("annex-kept".to_owned()).spawn(move || tidy(&all));
            // Without the thread, those that wait stay until a turn needs their places.
            if let Err(error) = tidying {
                tracing::warn!(%error, "instances that are kept are not given up when idle");
            }
        }
    }
}

/// A turn that waits for a place.
pub(crate) struct Waiting(Arc<AllParked>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// It ends with the last runtime.
fn tidy(all: &Weak<AllParked>) {
    while let Some(parkings) = all.upgrade().map(|all| all.each()) {
        let now = Instant::now();
        parkings.iter().for_each(|parking| parking.tidy(now));
        drop(parkings);
        thread::sleep(ROUND);
    }
}
