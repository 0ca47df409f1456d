//! Push notifications (A2A 1.0 sections 3.1.7 to 3.1.10 and 4.3): the registered receivers of each task's events.
//!
//! Push notifications read the events from the task's log with their own reader, so a receiver never slows down the task or its
//! streams. If several processes can send, `sending` coordinates them with cursors in the store.

use std::collections::HashMap;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_conversation::{AppendError, ConfigError, MAX_PUSH_CONFIGS, PushCursor, PushThen, Store, StoreError};
use annex_fairness::of_same_tenant;
use annex_protocol::{
    A2aError, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, StreamResponse, TaskId,
    TaskPushNotificationConfig,
};
use annex_push::{Event, InvalidConfig, Notifier, NotifierConfig, NotifierError, PreparedScreen};
use annex_telemetry::of_same_trace;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::keyed_locks::KeyedLocks;
use crate::looks::look_until;
use crate::process::Process;
use crate::push::of_0_3::{Posts, outgoing_0_3};
use crate::push::sending::Senders;
use crate::send_message::request_check::MAX_ID_BYTES;
use crate::tasks::Tasks;
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::tasks::record::{Subscription, TaskRecord};

mod configs;
mod of_0_3;
mod sending;

const DEFAULT_PAGE_SIZE: usize = 50;
/// The time between two searches for notifications that a process left unsent when it ended.
const LOOK: Duration = Duration::from_secs(1);
/// One out of this many searches for unsent notifications is thorough: it examines all cursors.
const THOROUGH: usize = 10;
/// The maximum number of cursors in one query.
const LEFT: usize = 16;
/// The pause before a task that could not be read is tried again.
const UNREADABLE: Duration = Duration::from_secs(60);

/// The push configs of all tasks, and the senders of the tasks' events. The task store keeps the configs.
pub struct PushNotifications {
    notifier: Arc<Notifier>,
    store: Arc<dyn Store>,
    process: Process,
    /// The configs of the tasks whose events are being forwarded.
    live: Mutex<HashMap<TaskId, Vec<Arc<TaskPushNotificationConfig>>>>,
    /// A lock per task. It is held while the configs of the task are read for a turn or changed, so that a deleted
    /// config is not read again.
    locks: KeyedLocks,
    /// The senders of this process. `None` if no other process can use the store.
    senders: Option<Arc<Senders>>,
    closing: CancellationToken,
}

impl PushNotifications {
    pub fn new(notifier: Notifier, (store, process): (Arc<dyn Store>, Process), closing: CancellationToken) -> Self {
        let notifier = Arc::new(notifier);
        let new_senders = |_| Senders::new(Arc::clone(&notifier), Arc::clone(&store), closing.clone());
        let senders = store.push_cursors().map(new_senders);
        Self { notifier, store, process, live: Mutex::default(), locks: KeyedLocks::new(), senders, closing }
    }

    /// Prepares a screen for receivers' addresses from the config.
    ///
    /// # Errors
    /// When the HTTP client cannot be made.
    pub fn prepare_screen(&self, config: &NotifierConfig) -> Result<PreparedScreen, NotifierError> {
        self.notifier.prepare_screen(config)
    }

    /// Replaces the screen. The next attempt of each notification uses the new screen.
    pub fn set_screen(&self, prepared: PreparedScreen) {
        self.notifier.set_screen(prepared);
    }

    /// Checks a config that a client wants to register. `at` is the path of the config in the request.
    pub(crate) async fn check(&self, config: &TaskPushNotificationConfig, at: &str) -> Result<(), A2aError> {
        if config.id.as_ref().is_some_and(|id| id.len() > MAX_ID_BYTES || id.contains('\0')) {
            let description = format!("is longer than {MAX_ID_BYTES} bytes or has a NUL in it");
            return Err(A2aError::invalid_field(format!("{at}id"), description));
        }
        let refused = |invalid: InvalidConfig| {
            let field = match invalid {
                InvalidConfig::Url(_) => "url",
                InvalidConfig::Token { .. } => "token",
                InvalidConfig::Authentication { .. } => "authentication",
            };
            A2aError::invalid_field(format!("{at}{field}"), invalid.to_string())
        };
        self.notifier.check(config).await.map_err(refused)
    }

    /// Checks that the task can have one more config.
    pub(crate) async fn check_room(
        &self,
        task_id: &TaskId,
        config: &TaskPushNotificationConfig,
    ) -> Result<(), A2aError> {
        let configs = self.store.configs(task_id, "", MAX_PUSH_CONFIGS).await.map_err(fault::of_store)?.configs;
        let replaces = config.id.is_some() && configs.iter().any(|known| known.id == config.id);
        if replaces || configs.len() < MAX_PUSH_CONFIGS {
            return Ok(());
        }
        Err(not_kept(ConfigError::TooMany { limit: MAX_PUSH_CONFIGS }))
    }

    /// Registers a checked config, or replaces the config with the same id. The receiver gets the events after the
    /// registration, if the task is not finished.
    pub(crate) async fn put(
        self: &Arc<Self>,
        record: &TaskRecord,
        subscription: Subscription,
        mut config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let task_id = record.id();
        let id = config.id.take().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        config.id = Some(id.clone());
        config.task_id = Some(task_id.clone());
        let _locked = self.locks.lock(task_id).await;
        self.store.put_config(task_id, &config).await.map_err(|error| match error {
            ConfigError::Append(AppendError::Missing) => A2aError::TaskNotFound { task_id: task_id.clone() },
            error => not_kept(error),
        })?;
        let shown = shown(config);
        // Queued events and a suspension of the replaced config do not apply to the new one.
        self.notifier.remove(task_id, &id);
        let Some(reader) = subscription.reader else { return Ok(shown) };
        match &self.senders {
            Some(senders) => self.send_behind(senders, record, (&id, subscription.seq)).await?,
            None => self.start(record, reader).await?,
        }
        Ok(shown)
    }

    /// Starts forwarding the events of a turn to the receivers that are registered for its task.
    pub(crate) async fn forward(self: &Arc<Self>, record: &Arc<TaskRecord>, reader: LogReader) -> Result<(), A2aError> {
        let _locked = self.locks.lock(record.id()).await;
        let (Some(senders), Some(cursors)) = (&self.senders, self.store.push_cursors()) else {
            return self.start(record, reader).await;
        };
        for cursor in cursors.claim(record.id(), &self.process.replica()).await.map_err(fault::of_store)? {
            // The previous process of the task may have left events unsent.
            if let Some(reader) = record.read_behind(cursor.sent) {
                senders.start(cursor, reader);
            }
        }
        Ok(())
    }

    /// Sends the last event of a task that ended while it waited for its client. Such a task has no turn that would send the
    /// event.
    pub(crate) fn send_end(&self, record: &Arc<TaskRecord>) {
        let Some(senders) = self.senders.clone() else { return };
        let store = Arc::clone(&self.store);
        let (record, by) = (Arc::clone(record), self.process.replica());
        // The caller does not wait. If this fails, a thorough poll finds the unsent event.
        tokio::spawn(of_same_trace(of_same_tenant(async move {
            let Some(cursors) = store.push_cursors() else { return };
            let claimed = cursors.claim(record.id(), &by).await.unwrap_or_default();
            for cursor in claimed {
                if let Some(reader) = record.read_behind(cursor.sent) {
                    senders.start(cursor, reader);
                }
            }
        })));
    }

    /// Makes sure that the receiver of a new config gets the events after number `seq`. This process sends the events if the
    /// task has a turn in any process or is finished. Otherwise the process that runs the next turn of the task sends the
    /// events.
    async fn send_behind(
        &self,
        senders: &Arc<Senders>,
        record: &TaskRecord,
        (config, seq): (&str, u64),
    ) -> Result<(), A2aError> {
        let Some(cursors) = self.store.push_cursors() else { return Ok(()) };
        let sends = record.is_running() || record.runs_elsewhere() || record.is_finished();
        let opened =
            cursors.open(record.id(), config, seq, (&self.process.replica(), sends)).await.map_err(fault::of_store)?;
        // The task may have continued or even ended since.
        if let Some((cursor, reader)) = opened.filter(|_| sends).zip(record.read_behind(seq)) {
            senders.start(cursor, reader);
        }
        Ok(())
    }

    /// Sends notifications that other processes left unsent when they ended, until `stop` is cancelled. Returns at once
    /// if no other process can use the store.
    pub async fn send_left(&self, tasks: &Tasks, stop: CancellationToken) {
        let Some(senders) = &self.senders else { return };
        let stopped = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.closing.cancelled() => {}
            }
        };
        let mut looks = 0;
        let look = || {
            looks += 1;
            self.take_left(senders, tasks, looks % THOROUGH == 1)
        };
        look_until(stopped, LOOK, look).await;
    }

    async fn take_left(&self, senders: &Arc<Senders>, tasks: &Tasks, is_thorough: bool) -> Result<(), StoreError> {
        let Some(cursors) = self.store.push_cursors() else { return Ok(()) };
        loop {
            let by = self.process.replica();
            let left = if is_thorough {
                cursors.claim_unsent(LEFT, &by).await?
            } else {
                cursors.claim_left(LEFT, &by).await?
            };
            let is_all = left.len() < LEFT;
            self.send_on(left, senders, tasks).await;
            if is_all {
                return Ok(());
            }
        }
    }

    /// Sends the events after each cursor in `cursors`. This process has taken the cursors over.
    async fn send_on(&self, cursors: Vec<PushCursor>, senders: &Arc<Senders>, tasks: &Tasks) {
        for cursor in cursors {
            let (wait, then) = match tasks.open(&cursor.owner, &cursor.task).await {
                Ok(record) => match record.read_behind(cursor.sent) {
                    Some(reader) => {
                        senders.start(cursor, reader);
                        continue;
                    }
                    None => (Duration::ZERO, PushThen::Ends),
                },
                // The task cannot be read now. Without a pause every poll would find its cursor again.
                Err(_) => (UNREADABLE, PushThen::Leaves),
            };
            senders.settle(cursor, wait, then);
        }
    }

    /// Starts forwarding the events of a turn, like [`forward`](Self::forward). The caller holds the task's lock.
    async fn start(self: &Arc<Self>, record: &TaskRecord, reader: LogReader) -> Result<(), A2aError> {
        let task_id = record.id();
        let configs = self.store.configs(task_id, "", MAX_PUSH_CONFIGS).await.map_err(fault::of_store)?.configs;
        let configs: Vec<_> = configs.into_iter().map(Arc::new).collect();
        if configs.is_empty() {
            return Ok(());
        }
        // If a reader already forwards the events, it continues with these configs.
        let known = self.live().insert(task_id.clone(), configs);
        if known.is_none() {
            tokio::spawn(of_same_trace(of_same_tenant(Arc::clone(self).run(task_id.clone(), reader))));
        }
        Ok(())
    }

    async fn run(self: Arc<Self>, task_id: TaskId, mut reader: LogReader) {
        let mut posts = Posts::default();
        loop {
            let event = tokio::select! {
                biased;
                event = reader.next() => event,
                () = self.closing.cancelled() => None,
            };
            let Some(event) = event else { break };
            // Reading a logged event never yields, so the budget lets other tasks use the thread.
            consume_budget().await;
            let of_0_3 = match self.has_receivers_of_0_3(&task_id) && posts.is_due(&event, &reader) {
                true => outgoing_0_3(self.store.as_ref(), &task_id, &event).await,
                false => None,
            };
            let of_1_0 = outgoing(&task_id, &event);
            // Queued under the lock, so that a config that is deleted at the same time gets nothing more.
            for config in self.live().get(&task_id).into_iter().flatten() {
                let sent = if config.receiver_is_v0_3 { of_0_3.as_ref() } else { Some(&of_1_0) };
                if let Some(sent) = sent {
                    self.notifier.send(&task_id, slice::from_ref(config), sent);
                }
            }
        }
        self.live().remove(&task_id);
    }

    fn has_receivers_of_0_3(&self, task_id: &TaskId) -> bool {
        self.live().get(task_id).is_some_and(|configs| configs.iter().any(|config| config.receiver_is_v0_3))
    }

    /// The config of the task with this id.
    pub(crate) async fn get(&self, task_id: &TaskId, id: &str) -> Result<TaskPushNotificationConfig, A2aError> {
        let found = self.store.config(task_id, id).await.map_err(fault::of_store)?;
        found.map(shown).ok_or_else(|| no_config(task_id, id))
    }

    /// The first config of the task, in the order of the ids.
    pub(crate) async fn first(&self, task_id: &TaskId) -> Result<TaskPushNotificationConfig, A2aError> {
        let page = self.store.configs(task_id, "", 1).await.map_err(fault::of_store)?;
        page.configs.into_iter().next().map(shown).ok_or_else(|| no_config(task_id, ""))
    }

    /// One page of configs in the order of their ids. The token is the last id of the previous page.
    pub(crate) async fn list(
        &self,
        request: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, A2aError> {
        let size = match usize::try_from(request.page_size) {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) => size.min(MAX_PUSH_CONFIGS),
            Err(_) => return Err(A2aError::invalid_field("pageSize", "is negative")),
        };
        let after = request.page_token.as_deref().unwrap_or_default();
        let page = self.store.configs(&request.task_id, after, size).await.map_err(fault::of_store)?;
        let configs = page.configs.into_iter().map(shown).collect();
        Ok(ListTaskPushNotificationConfigsResponse { configs, next_page_token: page.next })
    }

    /// Deletes a config. A missing config is not an error.
    pub(crate) async fn delete(&self, task_id: &TaskId, id: &str) -> Result<(), A2aError> {
        let _locked = self.locks.lock(task_id).await;
        self.store.delete_config(task_id, id).await.map_err(fault::of_store)?;
        if let Some(configs) = self.live().get_mut(task_id) {
            configs.retain(|config| config.id.as_deref() != Some(id));
        }
        // This comes last, because nothing more is queued once `live` has changed.
        match &self.senders {
            Some(senders) => senders.stop(task_id, id),
            None => self.notifier.remove(task_id, id),
        }
        Ok(())
    }

    /// Delivers queued notifications for at most `max_wait`.
    pub async fn close(&self, max_wait: Duration) {
        let begin = Instant::now();
        if let Some(senders) = &self.senders {
            // Other processes send the rest.
            let _ = timeout(max_wait, senders.over()).await;
        }
        self.notifier.close(max_wait.saturating_sub(begin.elapsed())).await;
    }

    fn live(&self) -> MutexGuard<'_, HashMap<TaskId, Vec<Arc<TaskPushNotificationConfig>>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a client whose config could not be stored.
fn not_kept(error: ConfigError) -> A2aError {
    match error {
        ConfigError::TooMany { .. } => A2aError::invalid_params(format!("{error}; delete one")),
        ConfigError::Append(error) => fault::of_append(error),
    }
}

fn no_config(task_id: &TaskId, id: &str) -> A2aError {
    A2aError::PushConfigNotFound { task_id: task_id.clone(), config_id: id.to_owned() }
}

/// The config without the fields that Annex adds to A2A 1.0, which clients must not see.
fn shown(config: TaskPushNotificationConfig) -> TaskPushNotificationConfig {
    config.of_client()
}

fn outgoing(task: &TaskId, event: &LoggedEvent) -> Event {
    event_of(task, event, Arc::clone(event.json()))
}

fn event_of(task: &TaskId, event: &LoggedEvent, json: Arc<str>) -> Event {
    let sent = if rests(event) { Event::last(json) } else { Event::update(json) };
    match event.seq() {
        Some(seq) => sent.numbered(task, seq),
        None => sent,
    }
}

/// True if the event ends the task or makes it wait for its client.
fn rests(event: &LoggedEvent) -> bool {
    match event.event() {
        StreamResponse::StatusUpdate(update) => {
            update.status.state.is_terminal() || update.status.state.is_interrupted()
        }
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => false,
    }
}
