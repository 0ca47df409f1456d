//! Sends push notifications if several processes share the store. Each event of a task is sent at least once and in order, by
//! one process at a time.
//!
//! A cursor in the store records the last event that a receiver got, and the sending process. The sending process reads
//! the events from the log of the task, even if another process runs the task. An event is sent only after the previous
//! event was delivered or given up. No other queue is needed. If the sending process ends, another process continues
//! after the recorded event. Events that were sent but not recorded are sent again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_conversation::{MAX_PUSH_FAILURES, PushCursor, PushProgress, PushThen, Store, StoreError};
use annex_fairness::{of_same_tenant, of_tenant};
use annex_protocol::{StreamResponse, TaskId, TaskPushNotificationConfig};
use annex_push::{Fate, Notifier};
use annex_telemetry::of_same_trace;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault;
use crate::push::of_0_3::{Posts, outgoing_0_3};
use crate::push::outgoing;
use crate::tasks::log::{LogReader, LoggedEvent};

/// The pause after the first failed delivery of an event. Each further failure adds this time to the pause.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The pause before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// All senders of this process.
pub(super) struct Senders {
    notifier: Arc<Notifier>,
    store: Arc<dyn Store>,
    /// Cancelled when the server closes. Other processes then send the remaining events.
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

/// Whether a sender continues after an event.
enum Next {
    GoesOn,
    /// The sender ends. Other processes may send the remaining events, if there are any.
    IsOver,
}

impl Senders {
    pub(super) fn new(notifier: Arc<Notifier>, store: Arc<dyn Store>, closing: CancellationToken) -> Arc<Self> {
        Arc::new(Self { notifier, store, closing, live: Mutex::default(), running: TaskTracker::new() })
    }

    /// Sends the reader's events, starting behind the cursor. Replaces this process's earlier sender for the config.
    pub(super) fn start(self: &Arc<Self>, cursor: PushCursor, reader: LogReader) {
        let key = (cursor.task.clone(), cursor.config.id.clone().unwrap_or_default());
        self.stop(&key.0, &key.1);
        let stop = CancellationToken::new();
        self.live().insert(key.clone(), stop.clone());
        let senders = Arc::clone(self);
        // The sender gets the cursor's tenant, because there may be no request with that tenant: unsent events of ended
        // processes are taken by a poll.
        let tenant = cursor.owner.tenant.as_str().into();
        let sent = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = Sender::new(&senders, cursor).run(reader) => {}
            }
            let mut live = senders.live();
            // A new sender may have replaced this one, and has then cancelled it.
            if !stop.is_cancelled() {
                live.remove(&key);
            }
        };
        self.running.spawn(of_same_trace(of_tenant(tenant, sent)));
    }

    /// Stores the next step for a cursor without sending anything. Runs as a tokio task of its own, so that a failing
    /// store does not delay other cursors.
    pub(super) fn settle(self: &Arc<Self>, cursor: PushCursor, wait: Duration, then: PushThen) {
        let mut sender = Sender::new(self, cursor);
        let noted = async move { sender.note(sender.cursor.sent, wait, then).await };
        self.running.spawn(of_same_tenant(noted));
    }

    /// Stops sending to a config. A notification that is being sent is aborted.
    pub(super) fn stop(&self, task: &TaskId, config: &str) {
        let stopped = self.live().remove(&(task.clone(), config.to_owned()));
        if let Some(stopped) = stopped {
            stopped.cancel();
        }
        self.notifier.remove(task, config);
    }

    /// Waits, while the server closes, until all events that are ready have been sent.
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
                // `biased`: ready events are sent before the server closes.
                biased;
                event = reader.next() => event,
                () = self.senders.closing.cancelled() => return,
            };
            let Some(event) = event else { break };
            // Reading a logged event never yields, so the budget lets other tasks use the thread.
            consume_budget().await;
            if self.config.receiver_is_v0_3 && !posts.is_due(&event, &reader) {
                continue;
            }
            match self.send(&event).await {
                Next::GoesOn => {}
                Next::IsOver => return,
            }
        }
        // The log has ended before the task, or no event needed sending. The pause lets other cursors go first.
        self.note(self.cursor.sent, RETRY, PushThen::Leaves).await;
    }

    /// Sends an event until the receiver has got it or the event is given up.
    async fn send(&mut self, event: &LoggedEvent) -> Next {
        let Some(seq) = event.seq() else { return Next::GoesOn };
        let task = &self.cursor.task;
        let sent = match self.config.receiver_is_v0_3 {
            true => outgoing_0_3(self.senders.store.as_ref(), task, event).await,
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
                // `Senders::stop` cancels a sender before it removes the sender's notifications, so something else has
                // removed this one.
                Fate::Dropped => return self.note(self.cursor.sent, RETRY, PushThen::Leaves).await,
            }
        }
    }

    fn unless_suspended(&self, then: PushThen) -> PushThen {
        if self.cursor.failures < MAX_PUSH_FAILURES { then } else { PushThen::Leaves }
    }

    /// Stores the progress. Retries until the store has it or the server closes.
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

/// The next step of the sender after this event was delivered or given up.
fn after(event: &LoggedEvent) -> PushThen {
    match event.event() {
        StreamResponse::StatusUpdate(update) if update.status.state.is_terminal() => PushThen::Ends,
        StreamResponse::StatusUpdate(update) if update.status.state.is_interrupted() => PushThen::Rests,
        _ => PushThen::GoesOn,
    }
}
