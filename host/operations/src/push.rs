//! Push notifications (A2A 1.0 sections 3.1.7 to 3.1.10 and 4.3): who wants the events of which task.
//!
//! A task's events are forwarded by one more reader of its log, so a receiver never slows the task or its streams. Where
//! several processes can send, `sending` does that by cursors in the store.

use std::collections::HashMap;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::of_same_tenant;
use annex_protocol::{
    A2aError, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, Owner, StreamResponse,
    TaskId, TaskPushNotificationConfig,
};
use annex_push::{Event, InvalidConfig, Notifier, NotifierConfig, NotifierError, PreparedScreen};
use annex_tasks::{MAX_PUSH_CONFIGS, PushCursor, PushThen, StoreError, TaskStore};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::keyed_locks::KeyedLocks;
use crate::looks::look_until;
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
/// The time between two looks at what processes that are gone have left unsent.
const LOOK: Duration = Duration::from_secs(1);
/// The number of looks of which one looks through all cursors.
const THOROUGH: usize = 10;
/// The most cursors that are taken at once.
const LEFT: usize = 16;
/// The time until a task that could not be read is looked at again.
const UNREADABLE: Duration = Duration::from_secs(60);

/// The configs of all tasks, which are stored with the tasks, and what sends their events.
pub struct PushNotifications {
    notifier: Arc<Notifier>,
    store: Arc<dyn TaskStore>,
    /// The configs of the tasks whose events are being forwarded.
    live: Mutex<HashMap<TaskId, Vec<Arc<TaskPushNotificationConfig>>>>,
    /// Held while the configs of a task are read for its turn or changed, so that what was deleted is not read once
    /// more.
    locks: KeyedLocks,
    /// What this process sends where others can, too; `None` where there are none.
    senders: Option<Arc<Senders>>,
    closing: CancellationToken,
}

impl PushNotifications {
    pub fn new(notifier: Notifier, store: Arc<dyn TaskStore>, closing: CancellationToken) -> Self {
        let notifier = Arc::new(notifier);
        let new_senders = |_| Senders::new(Arc::clone(&notifier), Arc::clone(&store), closing.clone());
        let senders = store.push_cursors().map(new_senders);
        Self { notifier, store, live: Mutex::default(), locks: KeyedLocks::new(), senders, closing }
    }

    /// Makes the screen of this config for the addresses of receivers.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn prepare_screen(&self, config: &NotifierConfig) -> Result<PreparedScreen, NotifierError> {
        self.notifier.prepare_screen(config)
    }

    /// Judges addresses of receivers by this screen from the next attempt on.
    pub fn set_screen(&self, prepared: PreparedScreen) {
        self.notifier.set_screen(prepared);
    }

    /// Checks what a client wants to register; `at` is the path of the config in its request.
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

    /// Checks that the task has room for the config.
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
        Err(not_kept(StoreError::TooManyConfigs { limit: MAX_PUSH_CONFIGS }))
    }

    /// Registers a config that was checked; one with its id is replaced. Its receiver gets what follows the subscription, if
    /// the task still goes on.
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
        self.store.put_config(task_id, &config).await.map_err(not_kept)?;
        let shown = shown(config);
        // Events that wait for the config that was replaced, and its suspension, are not for the new one.
        self.notifier.remove(task_id, &id);
        let Some(reader) = subscription.reader else { return Ok(shown) };
        match &self.senders {
            Some(senders) => self.send_behind(senders, record, (&id, subscription.seq)).await?,
            None => self.start(record, reader).await?,
        }
        Ok(shown)
    }

    /// Another turn of the task begins. From now on its events go to whoever is registered.
    pub(crate) async fn forward(self: &Arc<Self>, record: &Arc<TaskRecord>, reader: LogReader) -> Result<(), A2aError> {
        let _locked = self.locks.lock(record.id()).await;
        let (Some(senders), Some(cursors)) = (&self.senders, self.store.push_cursors()) else {
            return self.start(record, reader).await;
        };
        for cursor in cursors.claim(record.id()).await.map_err(fault::of_store)? {
            // Whoever ran the task before may have left events unsent.
            if let Some(reader) = record.read_behind(cursor.sent) {
                senders.start(cursor, reader);
            }
        }
        Ok(())
    }

    /// A task that waited has ended without a turn, which would have sent its end to whoever is registered.
    pub(crate) fn send_end(&self, record: &Arc<TaskRecord>) {
        let Some(senders) = self.senders.clone() else { return };
        let store = Arc::clone(&self.store);
        let record = Arc::clone(record);
        // Whoever has ended it need not wait. What fails here is found by a thorough look.
        tokio::spawn(of_same_tenant(async move {
            let Some(cursors) = store.push_cursors() else { return };
            let claimed = cursors.claim(record.id()).await.unwrap_or_default();
            for cursor in claimed {
                if let Some(reader) = record.read_behind(cursor.sent) {
                    senders.start(cursor, reader);
                }
            }
        }));
    }

    /// Sends what follows an event to a config that was just stored, or lets whoever goes on with the task do that.
    async fn send_behind(
        &self,
        senders: &Arc<Senders>,
        record: &TaskRecord,
        (config, seq): (&str, u64),
    ) -> Result<(), A2aError> {
        let Some(cursors) = self.store.push_cursors() else { return Ok(()) };
        let sends = record.is_running() || record.runs_elsewhere() || record.is_finished();
        let opened = cursors.open(record.id(), config, (seq, sends)).await.map_err(fault::of_store)?;
        // The task may have gone on meanwhile, and even have ended.
        if let Some((cursor, reader)) = opened.filter(|_| sends).zip(record.read_behind(seq)) {
            senders.start(cursor, reader);
        }
        Ok(())
    }

    /// Sends what processes that are gone have left unsent, until it is told to stop; at once where there are none.
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
            let left = if is_thorough { cursors.claim_unsent(LEFT).await? } else { cursors.claim_left(LEFT).await? };
            let is_all = left.len() < LEFT;
            self.send_on(left, senders, tasks).await;
            if is_all {
                return Ok(());
            }
        }
    }

    /// Sends what is behind the cursors, which this process has taken.
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
                // It cannot be read now, and would be found again and again.
                Err(_) => (UNREADABLE, PushThen::Leaves),
            };
            senders.settle(cursor, wait, then);
        }
    }

    /// The same, inside the task's lock.
    async fn start(self: &Arc<Self>, record: &TaskRecord, reader: LogReader) -> Result<(), A2aError> {
        let task_id = record.id();
        let configs = self.store.configs(task_id, "", MAX_PUSH_CONFIGS).await.map_err(fault::of_store)?.configs;
        let configs: Vec<_> = configs.into_iter().map(Arc::new).collect();
        if configs.is_empty() {
            return Ok(());
        }
        // A reader that forwards events already goes on, and takes these configs from now on.
        let known = self.live().insert(task_id.clone(), configs);
        if known.is_none() {
            tokio::spawn(of_same_tenant(Arc::clone(self).run(record.owner().clone(), task_id.clone(), reader)));
        }
        Ok(())
    }

    async fn run(self: Arc<Self>, owner: Owner, task_id: TaskId, mut reader: LogReader) {
        let mut posts = Posts::default();
        loop {
            let event = tokio::select! {
                biased;
                event = reader.next() => event,
                () = self.closing.cancelled() => None,
            };
            let Some(event) = event else { break };
            // Events that are there are read without a wait, and others use this thread, too.
            consume_budget().await;
            let of_0_3 = match self.has_receivers_of_0_3(&task_id) && posts.is_due(&event, &reader) {
                true => outgoing_0_3(self.store.as_ref(), (&owner, &task_id), &event).await,
                false => None,
            };
            let of_1_0 = outgoing(&task_id, &event);
            // Queued under the lock, so that a config which is deleted meanwhile is not sent to any more.
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

    /// A config by its id.
    pub(crate) async fn get(&self, task_id: &TaskId, id: &str) -> Result<TaskPushNotificationConfig, A2aError> {
        let found = self.store.config(task_id, id).await.map_err(fault::of_store)?;
        found.map(shown).ok_or_else(|| no_config(task_id, id))
    }

    /// The first config, in the order of the ids.
    pub(crate) async fn first(&self, task_id: &TaskId) -> Result<TaskPushNotificationConfig, A2aError> {
        let page = self.store.configs(task_id, "", 1).await.map_err(fault::of_store)?;
        page.configs.into_iter().next().map(shown).ok_or_else(|| no_config(task_id, ""))
    }

    /// One page in the order of the ids; the token is the last id of the page before.
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

    /// Deleting what is not there is no error.
    pub(crate) async fn delete(&self, task_id: &TaskId, id: &str) -> Result<(), A2aError> {
        let _locked = self.locks.lock(task_id).await;
        self.store.delete_config(task_id, id).await.map_err(fault::of_store)?;
        if let Some(configs) = self.live().get_mut(task_id) {
            configs.retain(|config| config.id.as_deref() != Some(id));
        }
        // Last: nothing more is queued once `live` is changed.
        match &self.senders {
            Some(senders) => senders.stop(task_id, id),
            None => self.notifier.remove(task_id, id),
        }
        Ok(())
    }

    /// Delivers what waits, but not for long.
    pub async fn close(&self, max_wait: Duration) {
        let begin = Instant::now();
        if let Some(senders) = &self.senders {
            // Others take what is left.
            let _ = timeout(max_wait, senders.over()).await;
        }
        self.notifier.close(max_wait.saturating_sub(begin.elapsed())).await;
    }

    fn live(&self) -> MutexGuard<'_, HashMap<TaskId, Vec<Arc<TaskPushNotificationConfig>>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error that the client gets when its config could not be stored.
fn not_kept(error: StoreError) -> A2aError {
    match error {
        StoreError::TooManyConfigs { .. } => A2aError::invalid_params(format!("{error}; delete one")),
        error => fault::of_store(error),
    }
}

fn no_config(task_id: &TaskId, id: &str) -> A2aError {
    A2aError::PushConfigNotFound { task_id: task_id.clone(), config_id: id.to_owned() }
}

/// The config as clients may see it.
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

/// True if the task rests from this event on: it is finished or interrupted.
fn rests(event: &LoggedEvent) -> bool {
    match event.event() {
        StreamResponse::StatusUpdate(update) => {
            update.status.state.is_terminal() || update.status.state.is_interrupted()
        }
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => false,
    }
}
