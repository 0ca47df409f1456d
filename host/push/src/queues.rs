//! The events that wait, per config of a task. A queue exists while it has events; nothing waits while it is locked.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_fairness::current_tenant;
use annex_protocol::{TaskId, TaskPushNotificationConfig};
use lru::LruCache;
use tokio_util::sync::CancellationToken;

use crate::notifier::{Event, NotifierConfig};

/// Names a queue: one config of one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) task: TaskId,
    pub(crate) config: String,
}

/// An event on its way to one receiver.
pub(crate) struct Pending {
    pub(crate) event: Event,
    pub(crate) config: Arc<TaskPushNotificationConfig>,
    _charge: Charge,
}

/// The outcome of pushing an event.
pub(crate) enum Pushed {
    /// It waits behind others.
    Waits,
    /// It is the first of a queue, which is now to be worked off.
    Starts(Ticket),
    /// It, or older ones, had to go. `first` tells whether this queue had not lost any before.
    Overflows { first: bool, dropped: u64 },
    /// The other queues take all the room, so this one was not begun and the event is dropped.
    NoRoom,
    /// The config is suspended or the queues are closed: the event is dropped.
    Refused,
}

/// Leave to work off one queue. Another queue of the same key, made after this one was removed, has another ticket.
#[derive(Clone)]
pub(crate) struct Ticket {
    number: u64,
    /// Ends the work: the queue was removed, or time is up.
    pub(crate) cancel: CancellationToken,
}

/// The next step of a queue.
pub(crate) enum Next {
    Event(Pending),
    /// The queue is empty and gone; so many of its events were dropped for lack of room.
    Done {
        overflowed: u64,
    },
}

/// The consequence of giving an event up.
pub(crate) enum GivenUpEvent {
    /// The queue goes on.
    Noted,
    /// Its config is suspended; so many events that waited are dropped.
    Suspended { dropped: u64 },
    /// The queue was removed meanwhile and the event counted.
    Removed,
}

pub(crate) struct Queues {
    state: Mutex<State>,
    bytes: Arc<AtomicUsize>,
    cancel: CancellationToken,
    max_queued: usize,
    max_bytes: usize,
    suspend_after: u32,
}

struct State {
    queues: HashMap<Key, Queue>,
    /// Bytes of the events of each tenant that has some.
    tenants: Tenants,
    /// Events given up in a row, by config that has any.
    failures: LruCache<Key, u32>,
    tickets: u64,
    closed: bool,
}

type Tenants = HashMap<Arc<str>, Arc<AtomicUsize>>;

struct Queue {
    ticket: Ticket,
    waiting: VecDeque<Pending>,
    /// True while an event was taken and is not settled.
    in_flight: bool,
    overflowed: u64,
}

impl Queues {
    /// Beyond this many configs the failures that are longest ago are forgotten, and with them a suspension.
    const REMEMBERED_FAILURES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

    pub(crate) fn new(config: &NotifierConfig, cancel: CancellationToken) -> Self {
        let failures = LruCache::new(Self::REMEMBERED_FAILURES);
        Self {
            state: Mutex::new(State {
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

    /// Adds an event at the end of its queue, which loses older events if there is no room.
    pub(crate) fn push(&self, key: &Key, config: &Arc<TaskPushNotificationConfig>, event: &Event) -> Pushed {
        let mut guard = self.lock();
        let state = &mut *guard;
        // `peek` does not make the failures newer: more events are no reason to remember them longer.
        if state.closed || state.failures.peek(key).is_some_and(|failures| *failures >= self.suspend_after) {
            return Pushed::Refused;
        }
        // Tenants that have none go before the map would grow.
        if state.tenants.len() == state.tenants.capacity() {
            forget_those_without(&mut state.tenants);
        }
        let own = Arc::clone(state.tenants.entry(current_tenant()).or_default());
        let charge = Charge::new([&self.bytes, &own], event.body.len());
        let pending = Pending { event: event.clone(), config: Arc::clone(config), _charge: charge };
        match state.queues.get_mut(key) {
            Some(queue) => self.append(queue, &mut state.tenants, pending, &own),
            // Queues of others have the room, and this event must not take it from them.
            None if self.is_full(&mut state.tenants, &own, 1) => Pushed::NoRoom,
            None => Pushed::Starts(state.start(key, pending, self.cancel.child_token())),
        }
    }

    fn append(&self, queue: &mut Queue, tenants: &mut Tenants, pending: Pending, own: &AtomicUsize) -> Pushed {
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
        if dropped == 0 { Pushed::Waits } else { Pushed::Overflows { first, dropped } }
    }

    /// Tells whether there is no room left for a queue of a tenant in which `waiting` events wait. Queues in which events wait
    /// get half of the room, so that receivers that lag do not take it from those that keep up. When the room is full, a tenant
    /// that has less than its share of it still gets room, up to twice of the room in all.
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

    /// Takes the oldest event. It must be settled before the next one is taken.
    pub(crate) fn next(&self, key: &Key, ticket: &Ticket) -> Next {
        let mut state = self.lock();
        let Some(queue) = state.queue(key, ticket) else { return Next::Done { overflowed: 0 } };
        if let Some(pending) = queue.waiting.pop_front() {
            queue.in_flight = true;
            return Next::Event(pending);
        }
        // Nobody can push in between: the queue is removed under the lock that found it empty.
        let overflowed = queue.overflowed;
        state.queues.remove(key);
        Next::Done { overflowed }
    }

    /// Notes that the taken event was delivered. `false` when the queue was removed meanwhile and the event counted.
    pub(crate) fn delivered(&self, key: &Key, ticket: &Ticket) -> bool {
        let mut state = self.lock();
        let Some(queue) = state.queue(key, ticket) else { return false };
        queue.in_flight = false;
        state.failures.pop(key);
        true
    }

    /// Notes that the taken event was given up. After too many in a row this suspends the config.
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

    /// Ends a queue whose ticket was cancelled; says how many events it had, including one that was taken.
    pub(crate) fn abandon(&self, key: &Key, ticket: &Ticket) -> u64 {
        let mut state = self.lock();
        if state.queue(key, ticket).is_none() {
            return 0;
        }
        state.queues.remove(key).map_or(0, |queue| queue.len())
    }

    /// Drops a queue and forgets the failures of its config; says how many events it had.
    pub(crate) fn remove(&self, key: &Key) -> u64 {
        let mut state = self.lock();
        state.failures.pop(key);
        // The worker holds the ticket of this queue. A new one under the same key gets another worker.
        let Some(queue) = state.queues.remove(key) else { return 0 };
        queue.ticket.cancel.cancel();
        queue.len()
    }

    /// Refuses all further events.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// The number of queues.
    pub(crate) fn len(&self) -> usize {
        self.lock().queues.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_those_without(tenants: &mut Tenants) {
    tenants.retain(|_, bytes| bytes.load(Ordering::Relaxed) > 0);
}

impl State {
    fn start(&mut self, key: &Key, pending: Pending, cancel: CancellationToken) -> Ticket {
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
    /// Drops the oldest event that is not the last of its task, or the oldest of all.
    fn drop_oldest(&mut self) -> Option<Pending> {
        let oldest = self.waiting.iter().position(|pending| !pending.event.is_last).unwrap_or(0);
        self.waiting.remove(oldest)
    }

    fn len(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(self.in_flight)
    }
}

/// The room that an event takes, until it is dropped.
struct Charge {
    /// The counts of all events and of those of the tenant.
    counts: [Arc<AtomicUsize>; 2],
    bytes: usize,
}

impl Charge {
    /// A flat charge for the memory beside the body of an event, which bounds the number of queues too.
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

    use super::{Charge, Key, Pushed, Queues};
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
            !matches!(of_tenant(tenant.into(), pushed).await, Pushed::NoRoom)
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
