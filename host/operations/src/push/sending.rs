//! Sending where several processes can: each event of a task at least once and in order, by one process at a time.
//!
//! A cursor in the store says how far a receiver has got, and which process sends. That one follows the task by its log,
//! wherever the task runs, and sends an event when the one before it is settled, so that the log is the queue. When the
//! process is gone another one goes on behind the event that was noted last; what was sent and not noted comes again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::{of_same_tenant, of_tenant};
use annex_protocol::{StreamResponse, TaskId, TaskPushNotificationConfig};
use annex_push::{Fate, Notifier};
use annex_tasks::{MAX_PUSH_FAILURES, PushCursor, PushProgress, PushThen, StoreError, TaskStore};
use tokio::task::coop::consume_budget;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault;
use crate::push::of_0_3::{Posts, outgoing_0_3};
use crate::push::outgoing;
use crate::tasks::log::{LogReader, LoggedEvent};

/// The time to the next attempts for an event whose attempts have all failed, by how often they have.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The time until something that the store has refused is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// All that this process sends.
pub(super) struct Senders {
    notifier: Arc<Notifier>,
    store: Arc<dyn TaskStore>,
    /// Fires when the server closes: the rest is for others.
    closing: CancellationToken,
    live: Mutex<HashMap<(TaskId, String), CancellationToken>>,
    running: TaskTracker,
}

/// Sends the events of one task to one receiver.
struct Sender {
    senders: Arc<Senders>,
    cursor: PushCursor,
    config: Arc<TaskPushNotificationConfig>,
}

/// What becomes of a sender behind an event.
enum Next {
    GoesOn,
    /// The rest is no longer this process's to send.
    IsOver,
}

impl Senders {
    pub(super) fn new(notifier: Arc<Notifier>, store: Arc<dyn TaskStore>, closing: CancellationToken) -> Arc<Self> {
        Arc::new(Self { notifier, store, closing, live: Mutex::default(), running: TaskTracker::new() })
    }

    /// Sends what the reader reads from behind the cursor on, in place of what this process sent to the config before.
    pub(super) fn start(self: &Arc<Self>, cursor: PushCursor, reader: LogReader) {
        let key = (cursor.task.clone(), cursor.config.id.clone().unwrap_or_default());
        self.stop(&key.0, &key.1);
        let stop = CancellationToken::new();
        self.live().insert(key.clone(), stop.clone());
        let senders = Arc::clone(self);
        // Not always whoever starts it: what processes that are gone have left is taken by nobody's request.
        let tenant = cursor.owner.tenant.as_str().into();
        let sent = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = Sender::new(&senders, cursor).run(reader) => {}
            }
            let mut live = senders.live();
            // Another one may have taken its place, which stopped it before.
            if !stop.is_cancelled() {
                live.remove(&key);
            }
        };
        self.running.spawn(of_tenant(tenant, sent));
    }

    /// Notes what becomes of a cursor of which nothing is sent. By another task: while the store fails others must be started.
    pub(super) fn settle(self: &Arc<Self>, cursor: PushCursor, wait: Duration, then: PushThen) {
        let mut sender = Sender::new(self, cursor);
        let noted = async move { sender.note(sender.cursor.sent, wait, then).await };
        self.running.spawn(of_same_tenant(noted));
    }

    /// Sends nothing more to a config. What is being sent breaks off.
    pub(super) fn stop(&self, task: &TaskId, config: &str) {
        let stopped = self.live().remove(&(task.clone(), config.to_owned()));
        if let Some(stopped) = stopped {
            stopped.cancel();
        }
        self.notifier.remove(task, config);
    }

    /// Waits until all is sent that is there to be sent, once the server closes.
    pub(super) async fn over(&self) {
        self.running.close();
        self.running.wait().await;
    }

    fn live(&self) -> MutexGuard<'_, HashMap<(TaskId, String), CancellationToken>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    fn new(senders: &Arc<Senders>, cursor: PushCursor) -> Self {
        let config = Arc::new(cursor.config.clone());
        Self { senders: Arc::clone(senders), cursor, config }
    }

    async fn run(mut self, mut reader: LogReader) {
        let mut posts = Posts::default();
        loop {
            let event = tokio::select! {
                // What is there is sent before the server closes.
                biased;
                event = reader.next() => event,
                () = self.senders.closing.cancelled() => return,
            };
            let Some(event) = event else { break };
            // Events that are there are read without a wait, and others use this thread, too.
            consume_budget().await;
            if self.config.receiver_is_v0_3 && !posts.is_due(&event, &reader) {
                continue;
            }
            match self.send(&event).await {
                Next::GoesOn => {}
                Next::IsOver => return,
            }
        }
        // The log has ended before the task has, or there was nothing to be sent. Others come first when it is looked again.
        self.note(self.cursor.sent, RETRY, PushThen::Leaves).await;
    }

    /// Sends an event until it is settled.
    async fn send(&mut self, event: &LoggedEvent) -> Next {
        let Some(seq) = event.seq() else { return Next::GoesOn };
        let task = &self.cursor.task;
        let sent = match self.config.receiver_is_v0_3 {
            true => outgoing_0_3(self.senders.store.as_ref(), (&self.cursor.owner, task), event).await,
            false => Some(outgoing(task, event)),
        };
        let Some(sent) = sent else { return Next::GoesOn };
        loop {
            match self.senders.notifier.deliver(&self.cursor.task, &self.config, &sent).await {
                Fate::Delivered => {
                    self.cursor.failures = 0;
                    return self.note(seq, Duration::ZERO, after(event)).await;
                }
                Fate::Refused => {
                    self.cursor.failures += 1;
                    let then = self.unless_suspended(after(event));
                    return self.note(seq, Duration::ZERO, then).await;
                }
                Fate::Failed => {
                    self.cursor.failures += 1;
                    let wait = FIRST_WAIT * self.cursor.failures;
                    let then = self.unless_suspended(PushThen::GoesOn);
                    let Next::GoesOn = self.note(self.cursor.sent, wait, then).await else { return Next::IsOver };
                    if self.is_closing_within(wait).await {
                        return Next::IsOver;
                    }
                }
                Fate::NoRoom => {
                    if self.is_closing_within(RETRY).await {
                        return Next::IsOver;
                    }
                }
                Fate::Dropped if self.senders.closing.is_cancelled() => return Next::IsOver,
                // Not by this sender, which would have been stopped before.
                Fate::Dropped => return self.note(self.cursor.sent, RETRY, PushThen::Leaves).await,
            }
        }
    }

    fn unless_suspended(&self, then: PushThen) -> PushThen {
        if self.cursor.failures < MAX_PUSH_FAILURES { then } else { PushThen::Leaves }
    }

    /// Stores how far this process has come, however long that takes.
    async fn note(&mut self, sent: u64, wait: Duration, then: PushThen) -> Next {
        self.cursor.sent = sent;
        let progress = PushProgress { sent, failures: self.cursor.failures, wait, then };
        let mut is_first = true;
        loop {
            match self.advance(&progress).await {
                Ok(true) => return Next::GoesOn,
                Ok(false) => return Next::IsOver,
                Err(error) if is_first => fault::log(&error),
                Err(_) => {}
            }
            is_first = false;
            if self.is_closing_within(RETRY).await {
                return Next::IsOver;
            }
        }
    }

    async fn advance(&self, progress: &PushProgress) -> Result<bool, StoreError> {
        match self.senders.store.push_cursors() {
            Some(cursors) => cursors.advance(&self.cursor, progress).await,
            None => Ok(false),
        }
    }

    async fn is_closing_within(&self, wait: Duration) -> bool {
        tokio::select! {
            () = self.senders.closing.cancelled() => true,
            () = sleep(wait) => false,
        }
    }
}

/// What a sender does behind an event that is settled.
fn after(event: &LoggedEvent) -> PushThen {
    match event.event() {
        StreamResponse::StatusUpdate(update) if update.status.state.is_terminal() => PushThen::Ends,
        StreamResponse::StatusUpdate(update) if update.status.state.is_interrupted() => PushThen::Rests,
        _ => PushThen::GoesOn,
    }
}
