//! Sends the events of tasks to registered receivers in the background.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_egress::Screen;
use annex_fairness::of_same_tenant;
use annex_protocol::{TaskId, TaskPushNotificationConfig};
use annex_telemetry::traces::TraceHandle;
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
use crate::queues::{GivenUpEvent, Key, Next, PushResult, Queues, Ticket};

/// Settings of a [`Notifier`]. [`NotifierConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct NotifierConfig {
    /// Addresses that may be called.
    pub screen: Screen,
    /// Timeout of an attempt, from connecting to the end of the answer. Default: 10 seconds.
    pub timeout: Duration,
    /// Maximum number of attempts per event. Default: 5.
    pub attempts: u32,
    /// Delay between attempts.
    pub backoff: Backoff,
    /// Number of consecutive failed events after which a config is suspended. Default: 5.
    pub suspend_after: u32,
    /// Maximum number of events that wait per config. The event that is being sent is not counted. Default: 100.
    pub max_queued: usize,
    /// Maximum size of all events that wait or are being sent: their bodies and 1 KiB per event. Default: 64 MiB. A
    /// tenant below its fair share may queue events beyond this limit. All tenants together may queue at most twice the
    /// limit.
    pub max_queued_bytes: usize,
    /// Maximum number of concurrent requests. Default: 128.
    pub max_concurrent: usize,
    /// Maximum number of concurrent requests per host and port. Default: 8.
    pub max_concurrent_per_host: usize,
    /// Maximum size of an event that is sent, in bytes. Default: 1 MiB.
    pub max_body: usize,
}

impl NotifierConfig {
    /// The default settings with this screen.
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

/// A [`StreamResponse`](annex_protocol::StreamResponse) in serialized form, or a task in the form of protocol 0.3.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) body: Bytes,
    pub(crate) is_last: bool,
    pub(crate) id: Option<HeaderValue>,
    pub(crate) media_type: HeaderValue,
    /// The span that has caused the event.
    pub(crate) trace: TraceHandle,
    /// Gets the outcome of the event. `None` if the caller does not wait for the outcome.
    done: Option<UnboundedSender<Fate>>,
}

impl Event {
    /// Creates an event that neither ends nor interrupts its task, from JSON. If a queue overflows, the oldest events of this
    /// kind are dropped first. The notification belongs to the current trace.
    pub fn update(json: Arc<str>) -> Self {
        let body = Bytes::from_owner(Body(json));
        let trace = annex_telemetry::trace_handle();
        Self { body, is_last: false, id: None, media_type: MEDIA_TYPE, trace, done: None }
    }

    /// Creates an event that ends or interrupts its task, from JSON. The receiver waits for this event. A queue that
    /// overflows drops it only if all its events are of this kind.
    pub fn last(json: Arc<str>) -> Self {
        Self { is_last: true, ..Self::update(json) }
    }

    /// Adds the event id `TASK/SEQ`, which is sent in the header `Annex-Event-Id`. An event that is sent again has
    /// the same id.
    #[must_use]
    pub fn numbered(self, task: &TaskId, seq: u64) -> Self {
        // This server creates task ids that are valid in a header. Any other id is omitted.
        Self { id: HeaderValue::from_str(&format!("{task}/{seq}")).ok(), ..self }
    }

    /// Changes the media type to the media type of protocol 0.3.
    #[must_use]
    pub fn of_0_3(self) -> Self {
        Self { media_type: MEDIA_TYPE_OF_0_3, ..self }
    }

    fn tell(&self, fate: Fate) {
        if let Some(done) = &self.done {
            // Sending fails if the caller no longer waits.
            let _ = done.send(fate);
        }
    }
}

/// The outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The receiver accepted the event.
    Delivered,
    /// All attempts failed. Later attempts may succeed.
    Failed,
    /// The receiver rejected the event permanently, or the event is too long.
    Refused,
    /// The event was not sent: its config was removed or is suspended, or the notifier is closed.
    Dropped,
    /// The event was not queued, because the queues are full.
    NoRoom,
}

struct Body(Arc<str>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Numbers of events since the start. An event with two receivers counts as two. Each is counted in one of the three
/// fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of events that receivers accepted.
    pub delivered: u64,
    /// Number of events that were given up: all attempts failed, or [`Notifier::close`] cut them off.
    pub given_up: u64,
    /// Number of events that were never sent: queues were full, the event was too long, or the config was suspended or
    /// removed.
    pub dropped: u64,
}

/// The reason why a notifier could not be created.
#[derive(Debug, thiserror::Error)]
pub enum NotifierError {
    /// The HTTP client could not be created.
    #[error("no HTTP client for push notifications")]
    Client(#[source] reqwest::Error),
    /// There is no Tokio runtime, which a notifier needs for its background work.
    #[error("push notifications need a Tokio runtime")]
    NoRuntime(#[source] tokio::runtime::TryCurrentError),
}

/// Posts events to the URLs of push notification configs (specification section 4.3.3).
///
/// The events of one config of one task arrive in order: an event is sent after the previous event was delivered or given up.
/// Configs do not wait for each other. Status 2xx is success. 408, 425, 429, 5xx and transport errors are retried. Any other
/// status is a permanent failure. A config with too many consecutive failures is suspended until [`Notifier::remove`] is
/// called, or until ten thousand other configs have failed.
pub struct Notifier {
    shared: Arc<NotifierCore>,
    workers: TaskTracker,
    runtime: Handle,
    cancel: CancellationToken,
    max_body: usize,
}

struct NotifierCore {
    delivery: Delivery,
    queues: Queues,
    delivered: AtomicU64,
    given_up: AtomicU64,
    dropped: AtomicU64,
    /// Number of events that were dropped because the queues were full.
    no_room: AtomicU64,
}

impl Notifier {
    /// Creates a notifier that works in the background of the current runtime.
    ///
    /// # Errors
    /// There is no runtime, or the HTTP client cannot be created.
    pub fn new(config: &NotifierConfig) -> Result<Self, NotifierError> {
        let runtime = Handle::try_current().map_err(NotifierError::NoRuntime)?;
        let cancel = CancellationToken::new();
        let shared = NotifierCore {
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

    /// Prepares a new screen from `config`. Only the screen of `config` is used.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn prepare_screen(&self, config: &NotifierConfig) -> Result<PreparedScreen, NotifierError> {
        self.shared.delivery.prepare_screen(config.screen.clone()).map_err(NotifierError::Client)
    }

    /// Replaces the screen. The next attempt of each event uses the new screen.
    pub fn set_screen(&self, prepared: PreparedScreen) {
        self.shared.delivery.set_screen(prepared);
    }

    /// Checks whether a config may be registered: its URL may be called, and its secrets fit into headers. Takes up
    /// to 5 seconds.
    ///
    /// # Errors
    /// The fault of the config, as text for its author.
    pub async fn check(&self, config: &TaskPushNotificationConfig) -> Result<(), InvalidConfig> {
        self.shared.delivery.check(config).await
    }

    /// Queues an event for one config and waits for its outcome.
    pub async fn deliver(&self, task: &TaskId, config: &Arc<TaskPushNotificationConfig>, event: &Event) -> Fate {
        let (done, mut fate) = mpsc::unbounded_channel();
        let event = Event { done: Some(done), ..event.clone() };
        self.send(task, slice::from_ref(config), &event);
        // The queue has a clone. If the queue is removed, both senders are gone and `recv` returns `None`.
        drop(event);
        fate.recv().await.unwrap_or(Fate::Dropped)
    }

    /// Queues an event of a task for each config in `configs`. Never waits. If the queue of a config is full, the
    /// oldest events of the queue are dropped, see [`Event`].
    pub fn send(&self, task: &TaskId, configs: &[Arc<TaskPushNotificationConfig>], event: &Event) {
        // Keeps `close` from ending between queueing an event and starting its worker.
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
                PushResult::Waits => {}
                PushResult::Starts(ticket) => {
                    // A queue belongs to one task and therefore to one tenant.
                    let work = of_same_tenant(Arc::clone(&self.shared).work(key, ticket));
                    self.workers.spawn_on(work, &self.runtime);
                }
                PushResult::Overflows { first, dropped } => {
                    if first {
                        tracing::warn!(%task, config = key.config.as_str(), "a queue of push notifications overflows, and older events are dropped");
                    }
                    add(&self.shared.dropped, dropped);
                }
                PushResult::NoRoom => {
                    self.note_full();
                    event.tell(Fate::NoRoom);
                }
                PushResult::Refused => add(&self.shared.dropped, 1),
            }
        }
    }

    /// Forgets a config that was deleted or replaced: drops its queued events and cancels the running attempt. If the
    /// config was suspended, the suspension ends.
    pub fn remove(&self, task: &TaskId, config_id: &str) {
        add(&self.shared.dropped, self.shared.queues.remove(&key(task, config_id)));
    }

    /// Numbers of events since the start.
    pub fn counts(&self) -> Counts {
        // Relaxed: no decision depends on these numbers, and they need not be consistent with each other.
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let NotifierCore { delivered, given_up, dropped, .. } = &*self.shared;
        Counts { delivered: read(delivered), given_up: read(given_up), dropped: read(dropped) }
    }

    /// Number of configs with events that wait or are being sent.
    pub fn queues(&self) -> usize {
        self.shared.queues.len()
    }

    /// Accepts no more events, sends queued events for up to `max_wait`, and gives up the remaining events.
    pub async fn close(&self, max_wait: Duration) {
        // Close the queues first, then the tracker: no worker may start after the tracker is closed.
        self.shared.queues.close();
        self.workers.close();
        if timeout(max_wait, self.workers.wait()).await.is_err() {
            self.cancel.cancel();
            self.workers.wait().await;
        }
    }

    /// Counts an event that was not queued, because the queues are full. Logs this only from time to time, because it
    /// may happen for every event.
    fn note_full(&self) {
        add(&self.shared.dropped, 1);
        let events = self.shared.no_room.fetch_add(1, Ordering::Relaxed) + 1;
        // Logs the 1st, 2nd, 4th, 8th, … event: a flood shows in the log without filling it.
        if events.is_power_of_two() {
            tracing::warn!(events, "events are dropped because the queues of push notifications are full");
        }
    }
}

impl NotifierCore {
    /// Sends the events of one queue until the queue is empty.
    async fn work(self: Arc<Self>, key: Key, ticket: Ticket) {
        tokio::select! {
            // If cancelled, takes no further event.
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
