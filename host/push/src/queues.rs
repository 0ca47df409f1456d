//! The queues of events, one per config of a task. A queue exists while it has events. The lock is never held across
//! an await.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_fairness::current_tenant;
use annex_protocol::{TaskId, TaskPushNotificationConfig};
use lru::LruCache;
use tokio_util::sync::CancellationToken;

use crate::notifier::{Event, NotifierConfig};

/// Identifies a queue: one config of one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) task: TaskId,
    pub(crate) config: String,
}

/// A queued event.
pub(crate) struct QueuedEvent {
    pub(crate) event: Event,
    pub(crate) config: Arc<TaskPushNotificationConfig>,
    _charge: Charge,
}

/// The result of queueing an event.
pub(crate) enum PushResult {
    /// The event waits behind other events of the queue.
    Waits,
    /// The event is the first of a new queue. The caller must start a worker.
    Starts(Ticket),
    /// Old events were dropped to make room, or the new event itself was. `first` is true if this queue had not dropped
    /// an event before.
    Overflows { first: bool, dropped: u64 },
    /// Other queues take all the room. The event was dropped.
    NoRoom,
    /// The config is suspended or the queues are closed. The event was dropped.
    Refused,
}

/// Permission to work on one queue. A later queue with the same key has another ticket.
#[derive(Clone)]
pub(crate) struct Ticket {
    number: u64,
    /// Cancels the work: the queue was removed, or the notifier ran out of time to close.
    pub(crate) cancel: CancellationToken,
}

/// The next step for the worker of a queue.
pub(crate) enum Next {
    Event(QueuedEvent),
    /// The queue is empty and was removed. `overflowed` is the number of its events that were dropped.
    Done {
        overflowed: u64,
    },
}

/// The consequence of giving up an event.
pub(crate) enum GivenUpEvent {
    /// The queue continues.
    Noted,
    /// The config is suspended and `dropped` waiting events were dropped.
    Suspended { dropped: u64 },
    /// The queue was removed in the meantime. Its removal has counted the event.
    Removed,
}

pub(crate) struct Queues {
    state: Mutex<QueueTable>,
    bytes: Arc<AtomicUsize>,
    cancel: CancellationToken,
    max_queued: usize,
    max_bytes: usize,
    suspend_after: u32,
}

struct QueueTable {
    queues: HashMap<Key, Queue>,
    /// Bytes of queued events, by tenant.
    tenants: Tenants,
    /// Number of consecutive failed events of each config.
    failures: LruCache<Key, u32>,
    tickets: u64,
    closed: bool,
}

type Tenants = HashMap<Arc<str>, Arc<AtomicUsize>>;

struct Queue {
    ticket: Ticket,
    waiting: VecDeque<QueuedEvent>,
    /// True while an event is being sent.
    in_flight: bool,
    overflowed: u64,
}

impl Queues {
    /// Maximum number of configs whose failures are remembered. If more configs fail, the config that failed least
    /// recently is forgotten, and a suspension of that config ends.
    const REMEMBERED_FAILURES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

    pub(crate) fn new(config: &NotifierConfig, cancel: CancellationToken) -> Self {
        let failures = LruCache::new(Self::REMEMBERED_FAILURES);
        Self {
            state: Mutex::new(QueueTable {
                queues: HashMap::new(),
                tenants: HashMap::new(),
                failures,
                tickets: 0,
                closed: false,
            }),
            bytes: Arc::default(),
            cancel,
            max_queued: config.max_queued.max(1),
            max_bytes: config.max_queued_bytes,
            suspend_after: config.suspend_after.max(1),
        }
    }

    /// Appends an event to its queue. Drops older events of the queue if there is no room.
    pub(crate) fn push(&self, key: &Key, config: &Arc<TaskPushNotificationConfig>, event: &Event) -> PushResult {
        let mut guard = self.lock();
        let state = &mut *guard;
        // `peek` does not refresh the entry: new events are no reason to remember failures for longer.
        if state.closed || state.failures.peek(key).is_some_and(|failures| *failures >= self.suspend_after) {
            return PushResult::Refused;
        }
        // Removes tenants without events before the map would grow.
        if state.tenants.len() == state.tenants.capacity() {
            forget_those_without(&mut state.tenants);
        }
        let own = Arc::clone(state.tenants.entry(current_tenant()).or_default());
        let charge = Charge::new([&self.bytes, &own], event.body.len());
        let pending = QueuedEvent { event: event.clone(), config: Arc::clone(config), _charge: charge };
        match state.queues.get_mut(key) {
            Some(queue) => self.append(queue, &mut state.tenants, pending, &own),
            // Other queues take the room, and a new queue must not displace their events.
            None if self.is_full(&mut state.tenants, &own, 1) => PushResult::NoRoom,
            None => PushResult::Starts(state.start(key, pending, self.cancel.child_token())),
        }
    }

    fn append(&self, queue: &mut Queue, tenants: &mut Tenants, pending: QueuedEvent, own: &AtomicUsize) -> PushResult {
        queue.waiting.push_back(pending);
        let mut dropped = 0;
        while queue.waiting.len() > self.max_queued || self.is_full(tenants, own, queue.waiting.len()) {
            if queue.drop_oldest().is_none() {
                break;
            }
            dropped += 1;
        }
        let first = queue.overflowed == 0;
        queue.overflowed += dropped;
        if dropped == 0 { PushResult::Waits } else { PushResult::Overflows { first, dropped } }
    }

    /// True if a tenant's queue with `waiting` events may not grow. A queue with more than one waiting event may only
    /// use half of the room, so that queues of slow receivers leave room for queues of fast receivers. When the room is
    /// full, a tenant below its fair share still gets room. All tenants together get at most twice the limit.
    fn is_full(&self, tenants: &mut Tenants, own: &AtomicUsize, waiting: usize) -> bool {
        let limit = if waiting <= 1 { self.max_bytes } else { self.max_bytes / 2 };
        let all = self.bytes.load(Ordering::Relaxed);
        if all <= limit {
            return false;
        }
        forget_those_without(tenants);
        let share = limit / tenants.len().max(1);
        own.load(Ordering::Relaxed) > share || all > limit.saturating_mul(2)
    }

    /// Takes the oldest event. Call `delivered` or `given_up` before taking the next event.
    pub(crate) fn next(&self, key: &Key, ticket: &Ticket) -> Next {
        let mut state = self.lock();
        let Some(queue) = state.queue(key, ticket) else { return Next::Done { overflowed: 0 } };
        if let Some(pending) = queue.waiting.pop_front() {
            queue.in_flight = true;
            return Next::Event(pending);
        }
        // The same lock covers finding the queue empty and removing it, so no event is lost in between.
        let overflowed = queue.overflowed;
        state.queues.remove(key);
        Next::Done { overflowed }
    }

    /// Records that the taken event was delivered. Returns `false` if the queue was removed in the meantime. Its
    /// removal has then counted the event.
    pub(crate) fn delivered(&self, key: &Key, ticket: &Ticket) -> bool {
        let mut state = self.lock();
        let Some(queue) = state.queue(key, ticket) else { return false };
        queue.in_flight = false;
        state.failures.pop(key);
        true
    }

    /// Records that the taken event was given up. Suspends the config after too many consecutive failures.
    pub(crate) fn given_up(&self, key: &Key, ticket: &Ticket) -> GivenUpEvent {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(queue) = state.queues.get_mut(key).filter(|queue| queue.ticket.number == ticket.number) else {
            return GivenUpEvent::Removed;
        };
        queue.in_flight = false;
        let failures = state.failures.get_or_insert_mut(key.clone(), || 0);
        *failures = failures.saturating_add(1);
        if *failures < self.suspend_after {
            return GivenUpEvent::Noted;
        }
        GivenUpEvent::Suspended { dropped: queue.waiting.drain(..).count() as u64 }
    }

    /// Removes a queue whose ticket was cancelled. Returns the number of its events, including the event that was taken.
    pub(crate) fn abandon(&self, key: &Key, ticket: &Ticket) -> u64 {
        let mut state = self.lock();
        if state.queue(key, ticket).is_none() {
            return 0;
        }
        state.queues.remove(key).map_or(0, |queue| queue.len())
    }

    /// Removes a queue and forgets the failures of its config. Returns the number of its events.
    pub(crate) fn remove(&self, key: &Key) -> u64 {
        let mut state = self.lock();
        state.failures.pop(key);
        // The worker holds the ticket of this queue. A new queue with the same key gets another worker.
        let Some(queue) = state.queues.remove(key) else { return 0 };
        queue.ticket.cancel.cancel();
        queue.len()
    }

    /// Refuses all further events.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// Number of queues.
    pub(crate) fn len(&self) -> usize {
        self.lock().queues.len()
    }

    fn lock(&self) -> MutexGuard<'_, QueueTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_those_without(tenants: &mut Tenants) {
    tenants.retain(|_, bytes| bytes.load(Ordering::Relaxed) > 0);
}

impl QueueTable {
    fn start(&mut self, key: &Key, pending: QueuedEvent, cancel: CancellationToken) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket { number: self.tickets, cancel };
        let waiting = VecDeque::from([pending]);
        let queue = Queue { ticket: ticket.clone(), waiting, in_flight: false, overflowed: 0 };
        self.queues.insert(key.clone(), queue);
        ticket
    }

    fn queue(&mut self, key: &Key, ticket: &Ticket) -> Option<&mut Queue> {
        self.queues.get_mut(key).filter(|queue| queue.ticket.number == ticket.number)
    }
}

impl Queue {
    /// Drops the oldest event that does not end or interrupt its task. If all events end or interrupt the task, drops the
    /// oldest event.
    fn drop_oldest(&mut self) -> Option<QueuedEvent> {
        let oldest = self.waiting.iter().position(|pending| !pending.event.is_last).unwrap_or(0);
        self.waiting.remove(oldest)
    }

    fn len(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(self.in_flight)
    }
}

/// The room that one event takes up. Dropping this value frees the room.
struct Charge {
    /// The number of bytes of all events, and the number of bytes of the tenant's events.
    counts: [Arc<AtomicUsize>; 2],
    bytes: usize,
}

impl Charge {
    /// Memory per event in addition to its body. As each queue has an event, this also bounds the number of queues.
    const OVERHEAD: usize = 1024;

    fn new(counts: [&Arc<AtomicUsize>; 2], body: usize) -> Self {
        let bytes = body + Self::OVERHEAD;
        let counts = counts.map(Arc::clone);
        for count in &counts {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { counts, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_egress::{Screen, ScreenConfig};
    use annex_fairness::of_tenant;
    use annex_protocol::{TaskId, TaskPushNotificationConfig};
    use tokio_util::sync::CancellationToken;

    use super::{Charge, Key, PushResult, Queues};
    use crate::notifier::{Event, NotifierConfig};

    #[tokio::test]
    async fn a_tenant_that_fills_the_room_leaves_others_their_share_of_it() {
        let room = 8 * Charge::OVERHEAD;
        let config =
            NotifierConfig { max_queued_bytes: room, ..NotifierConfig::new(Screen::new(ScreenConfig::default())) };
        let queues = Queues::new(&config, CancellationToken::new());
        let push = async |tenant: &str, task: u32| {
            let key = Key { task: TaskId::from(format!("{tenant}-{task}")), config: String::new() };
            let config = Arc::new(TaskPushNotificationConfig::default());
            let pushed = async { queues.push(&key, &config, &Event::update("{}".into())) };
            !matches!(of_tenant(tenant.into(), pushed).await, PushResult::NoRoom)
        };
        let mut begun = Vec::new();
        for tenant in ["loud", "louder", "quiet"] {
            let mut queues = 0;
            for task in 0..20 {
                queues += usize::from(push(tenant, task).await);
            }
            begun.push(queues);
        }
        assert_eq!(begun, [7, 3, 2], "all of the room, and then the half and the third of it");
        assert!(!push("loud", 100).await);
    }
}
