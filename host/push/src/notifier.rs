//! Sends the events of tasks to those who asked for them, in the background.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_egress::Screen;
use annex_fairness::of_same_tenant;
use annex_protocol::{TaskId, TaskPushNotificationConfig};
use bytes::Bytes;
use reqwest::header::HeaderValue;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::delivery::{Delivery, GivenUp, PreparedScreen};
use crate::invalid::InvalidConfig;
use crate::queues::{GivenUpEvent, Key, Next, Pushed, Queues, Ticket};

/// The rules by which events are sent. [`NotifierConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct NotifierConfig {
    /// The rule for the addresses that may be called.
    pub screen: Screen,
    /// The most that one attempt may take, from connecting to the end of the answer. 10 seconds.
    pub timeout: Duration,
    /// The most attempts for one event. 5.
    pub attempts: u32,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// After so many events given up in a row a config gets no more. 5.
    pub suspend_after: u32,
    /// The most events of one config that may wait behind the one that is being sent. 100.
    pub max_queued: usize,
    /// The room for all events that wait or are being sent: their bodies, and 1 KiB for each. 64 MiB. When it is full, a tenant
    /// that has less than its share of it still gets room, up to twice of this in all.
    pub max_queued_bytes: usize,
    /// The most requests that may be under way. 128.
    pub max_concurrent: usize,
    /// The most requests that may be under way to one host and port. 8.
    pub max_concurrent_per_host: usize,
    /// The longest event that is sent, in bytes. 1 MiB.
    pub max_body: usize,
}

impl NotifierConfig {
    /// The defaults.
    pub fn new(screen: Screen) -> Self {
        Self {
            screen,
            timeout: Duration::from_secs(10),
            attempts: 5,
            backoff: Backoff::default(),
            suspend_after: 5,
            max_queued: 100,
            max_queued_bytes: 64 * 1024 * 1024,
            max_concurrent: 128,
            max_concurrent_per_host: 8,
            max_body: 1024 * 1024,
        }
    }
}

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/a2a+json");
const MEDIA_TYPE_OF_0_3: HeaderValue = HeaderValue::from_static("application/json");

/// A [`StreamResponse`](annex_protocol::StreamResponse), or a task of 0.3, as it goes to receivers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) body: Bytes,
    pub(crate) is_last: bool,
    pub(crate) id: Option<HeaderValue>,
    pub(crate) media_type: HeaderValue,
    /// Who waits for what becomes of it.
    done: Option<UnboundedSender<Fate>>,
}

impl Event {
    /// An event that others follow, as JSON. The oldest such events are dropped when a queue overflows.
    pub fn update(json: Arc<str>) -> Self {
        let body = Bytes::from_owner(Body(json));
        Self { body, is_last: false, id: None, media_type: MEDIA_TYPE, done: None }
    }

    /// An event after which the task rests, in a terminal or an interrupted state, as JSON. Its receiver waits for it,
    /// so it is dropped only when there are no others to drop.
    pub fn last(json: Arc<str>) -> Self {
        Self { is_last: true, ..Self::update(json) }
    }

    /// The same with its number among the events of the task, which is sent in the field `Annex-Event-Id` behind the id of
    /// the task. An event that is sent again has the same.
    #[must_use]
    pub fn numbered(self, task: &TaskId, seq: u64) -> Self {
        // An id that is no text of a header field is none that this server has given.
        Self { id: HeaderValue::from_str(&format!("{task}/{seq}")).ok(), ..self }
    }

    /// The same for a receiver of 0.3, whose JSON has another media type.
    #[must_use]
    pub fn of_0_3(self) -> Self {
        Self { media_type: MEDIA_TYPE_OF_0_3, ..self }
    }

    fn tell(&self, fate: Fate) {
        if let Some(done) = &self.done {
            // Whoever waited may have given up.
            let _ = done.send(fate);
        }
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its receiver has taken it.
    Delivered,
    /// All attempts failed. Others may succeed later.
    Failed,
    /// Its receiver does not take it, or it is too long to be sent.
    Refused,
    /// It was not sent: its config was removed or is suspended, or the notifier is closed.
    Dropped,
    /// There was no room to send it.
    NoRoom,
}

struct Body(Arc<str>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The events since the start by their fate, counted per receiver; each ends up in one of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// A receiver has taken them.
    pub delivered: u64,
    /// Attempts failed, or were cut off by [`Notifier::close`].
    pub given_up: u64,
    /// Never sent: there was no room, they were too long, or their config was suspended or removed meanwhile.
    pub dropped: u64,
}

/// A notifier could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NotifierError {
    /// The HTTP client could not be made.
    #[error("no HTTP client for push notifications")]
    Client(#[source] reqwest::Error),
    /// A notifier works in the background of a Tokio runtime and must be made within one.
    #[error("push notifications need a Tokio runtime")]
    NoRuntime(#[source] tokio::runtime::TryCurrentError),
}

/// Posts events to the URLs of push notification configs (specification section 4.3.3).
///
/// The events of one config of one task arrive in order: the next one is sent after the earlier one was delivered or
/// given up. Configs do not wait for each other. 2xx is success; 408, 425, 429, 5xx and transport errors are tried
/// again; anything else is given up at once. After too many events given up in a row a config is suspended, until
/// [`Notifier::remove`] or until it is forgotten among ten thousand others.
pub struct Notifier {
    shared: Arc<Shared>,
    workers: TaskTracker,
    runtime: Handle,
    cancel: CancellationToken,
    max_body: usize,
}

struct Shared {
    delivery: Delivery,
    queues: Queues,
    delivered: AtomicU64,
    given_up: AtomicU64,
    dropped: AtomicU64,
    /// The number of dropped events that had no queue to wait in.
    no_room: AtomicU64,
}

impl Notifier {
    /// Makes a notifier, which works in the background of the current runtime.
    ///
    /// # Errors
    /// There is no runtime, or no HTTP client can be made.
    pub fn new(config: &NotifierConfig) -> Result<Self, NotifierError> {
        let runtime = Handle::try_current().map_err(NotifierError::NoRuntime)?;
        let cancel = CancellationToken::new();
        let shared = Shared {
            delivery: Delivery::new(config).map_err(NotifierError::Client)?,
            queues: Queues::new(config, cancel.clone()),
            delivered: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            no_room: AtomicU64::new(0),
        };
        let workers = TaskTracker::new();
        Ok(Self { shared: Arc::new(shared), workers, runtime, cancel, max_body: config.max_body })
    }

    /// Makes the screen of this config, of which nothing else counts.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn prepare_screen(&self, config: &NotifierConfig) -> Result<PreparedScreen, NotifierError> {
        self.shared.delivery.prepare_screen(config.screen.clone()).map_err(NotifierError::Client)
    }

    /// Judges addresses by this screen from the next attempt on.
    pub fn set_screen(&self, prepared: PreparedScreen) {
        self.shared.delivery.set_screen(prepared);
    }

    /// Checks whether a config may be registered: its URL may be called and its secrets can be sent. It takes up to 5
    /// seconds.
    ///
    /// # Errors
    /// The fault in it, in words that its author may read.
    pub async fn check(&self, config: &TaskPushNotificationConfig) -> Result<(), InvalidConfig> {
        self.shared.delivery.check(config).await
    }

    /// Sends an event to one config, behind those that are queued for it, and waits for what becomes of it.
    pub async fn deliver(&self, task: &TaskId, config: &Arc<TaskPushNotificationConfig>, event: &Event) -> Fate {
        let (done, mut fate) = mpsc::unbounded_channel();
        let event = Event { done: Some(done), ..event.clone() };
        self.send(task, slice::from_ref(config), &event);
        // The queue has the other one. One that is removed drops it.
        drop(event);
        fate.recv().await.unwrap_or(Fate::Dropped)
    }

    /// Queues an event of a task for each of its configs. Never waits. An event that finds no room drops the oldest
    /// that waits for the same config, see [`Event`].
    pub fn send(&self, task: &TaskId, configs: &[Arc<TaskPushNotificationConfig>], event: &Event) {
        // Keeps `close` from ending between an event that is queued and the start of its worker.
        let _token = self.workers.token();
        for config in configs {
            let key = key(task, config.id.as_deref().unwrap_or_default());
            if event.body.len() > self.max_body {
                let bytes = event.body.len();
                tracing::warn!(%task, config = key.config.as_str(), bytes, "an event is too long for a push notification");
                add(&self.shared.dropped, 1);
                event.tell(Fate::Refused);
                continue;
            }
            match self.shared.queues.push(&key, config, event) {
                Pushed::Waits => {}
                Pushed::Starts(ticket) => {
                    // A queue has the events of one task, so all of it is for one tenant.
                    let work = of_same_tenant(Arc::clone(&self.shared).work(key, ticket));
                    self.workers.spawn_on(work, &self.runtime);
                }
                Pushed::Overflows { first, dropped } => {
                    if first {
                        tracing::warn!(%task, config = key.config.as_str(), "push notifications overflow, older ones are dropped");
                    }
                    add(&self.shared.dropped, dropped);
                }
                Pushed::NoRoom => {
                    self.note_full();
                    event.tell(Fate::NoRoom);
                }
                Pushed::Refused => add(&self.shared.dropped, 1),
            }
        }
    }

    /// Forgets a config that was deleted or replaced: drops the events that are queued for it, breaks off the one that
    /// is being sent, and ends its suspension.
    pub fn remove(&self, task: &TaskId, config_id: &str) {
        add(&self.shared.dropped, self.shared.queues.remove(&key(task, config_id)));
    }

    /// The numbers of events so far, by their fate.
    pub fn counts(&self) -> Counts {
        // Relaxed: nothing is decided by these numbers, and they need not be of one moment.
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { delivered, given_up, dropped, .. } = &*self.shared;
        Counts { delivered: read(delivered), given_up: read(given_up), dropped: read(dropped) }
    }

    /// The number of configs for which events are queued or being sent.
    pub fn queues(&self) -> usize {
        self.shared.queues.len()
    }

    /// Takes no more events, sends what is queued for up to `max_wait`, and gives up the rest.
    pub async fn close(&self, max_wait: Duration) {
        // Events first, then workers: a tracker that is closed and empty ends the wait, and nothing may start after it.
        self.shared.queues.close();
        self.workers.close();
        if timeout(max_wait, self.workers.wait()).await.is_err() {
            self.cancel.cancel();
            self.workers.wait().await;
        }
    }

    /// This may happen for each event of each task, and so is not logged each time.
    fn note_full(&self) {
        add(&self.shared.dropped, 1);
        let events = self.shared.no_room.fetch_add(1, Ordering::Relaxed) + 1;
        // Lines at 1, 2, 4, … events: a flood is seen in the log and does not fill it.
        if events.is_power_of_two() {
            tracing::warn!(events, "events are dropped because other push notifications take all the room");
        }
    }
}

impl Shared {
    /// Works off one queue, from its first event until it is empty.
    async fn work(self: Arc<Self>, key: Key, ticket: Ticket) {
        tokio::select! {
            // Work that is cancelled ends before it takes another event.
            biased;
            () = ticket.cancel.cancelled() => {
                let events = self.queues.abandon(&key, &ticket);
                if events > 0 {
                    tracing::warn!(task = %key.task, config = key.config.as_str(), events, "push notifications are given up at shutdown");
                }
                add(&self.given_up, events);
            }
            () = self.send_all(&key, &ticket) => {}
        }
    }

    async fn send_all(&self, key: &Key, ticket: &Ticket) {
        loop {
            let pending = match self.queues.next(key, ticket) {
                Next::Event(pending) => pending,
                Next::Done { overflowed: 0 } => return,
                Next::Done { overflowed } => {
                    tracing::warn!(task = %key.task, config = key.config.as_str(), overflowed, "push notifications were dropped");
                    return;
                }
            };
            match self.delivery.deliver(&pending.config, &pending.event).await {
                Ok(()) => {
                    add(&self.delivered, self.queues.delivered(key, ticket).into());
                    pending.event.tell(Fate::Delivered);
                }
                Err(given_up) => {
                    self.give_up(key, ticket, &given_up);
                    let is_transient = given_up.failure.is_transient();
                    pending.event.tell(if is_transient { Fate::Failed } else { Fate::Refused });
                }
            }
        }
    }

    fn give_up(&self, key: &Key, ticket: &Ticket, given_up: &GivenUp) {
        let GivenUp { origin, attempts, failure } = given_up;
        let task = &key.task;
        let config = key.config.as_str();
        let origin = origin.as_deref();
        let failure = failure.line();
        let settled = self.queues.given_up(key, ticket);
        if matches!(settled, GivenUpEvent::Removed) {
            return;
        }
        tracing::warn!(%task, config, origin, attempts, failure, "a push notification is given up");
        add(&self.given_up, 1);
        if let GivenUpEvent::Suspended { dropped } = settled {
            tracing::warn!(%task, config, origin, dropped, "a push notification config is suspended");
            add(&self.dropped, dropped);
        }
    }
}

fn key(task: &TaskId, config: &str) -> Key {
    Key { task: task.clone(), config: config.to_owned() }
}

fn add(count: &AtomicU64, events: u64) {
    count.fetch_add(events, Ordering::Relaxed);
}
