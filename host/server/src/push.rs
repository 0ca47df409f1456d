//! Push notifications (A2A 1.0 sections 3.1.7 to 3.1.10 and 4.3): who wants the events of which task.
//!
//! A task's events are forwarded by one more reader of its log, so a receiver never slows the task or its streams.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_protocol::{
    A2aError, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, StreamResponse, TaskId,
    TaskPushNotificationConfig,
};
use annex_push::{Event, Notifier};
use lru::LruCache;
use tokio_util::sync::CancellationToken;

use crate::task_log::{LogReader, LoggedEvent};

/// Configs of one task.
const MAX_CONFIGS: usize = 100;
/// Bytes of an id that a client chooses.
const MAX_ID_BYTES: usize = 256;
const DEFAULT_PAGE_SIZE: usize = 50;

type Config = Arc<TaskPushNotificationConfig>;

/// The configs of all tasks, and what sends their events.
pub(crate) struct PushNotifications {
    notifier: Notifier,
    tasks: Mutex<LruCache<TaskId, Receivers>>,
    closing: CancellationToken,
}

#[derive(Default)]
struct Receivers {
    /// In the order of their ids.
    configs: Vec<Config>,
    /// Whether a reader forwards the task's events.
    is_forwarded: bool,
}

impl PushNotifications {
    /// Keeps the configs of so many tasks; those of the task that was used longest ago go first.
    pub(crate) fn new(notifier: Notifier, max_tasks: usize, closing: CancellationToken) -> Self {
        let tasks = NonZeroUsize::new(max_tasks).map_or_else(LruCache::unbounded, LruCache::new);
        Self { notifier, tasks: Mutex::new(tasks), closing }
    }

    /// Checks what a client wants to register; `at` is the path of the config in its request.
    pub(crate) async fn check(&self, config: &TaskPushNotificationConfig, at: &str) -> Result<(), A2aError> {
        if config.id.as_ref().is_some_and(|id| id.len() > MAX_ID_BYTES) {
            return Err(A2aError::invalid_field(format!("{at}id"), format!("is longer than {MAX_ID_BYTES} bytes")));
        }
        let refused = |refused: annex_push::Refused| A2aError::invalid_field(format!("{at}url"), refused.to_string());
        self.notifier.check(config).await.map_err(refused)
    }

    /// Registers a config that was checked; one with its id is replaced. `reader` reads the task from now on, if it
    /// still goes on.
    pub(crate) fn put(
        self: &Arc<Self>,
        task_id: &TaskId,
        mut config: TaskPushNotificationConfig,
        reader: Option<LogReader>,
    ) -> Result<Config, A2aError> {
        let id = config.id.take().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        config.id = Some(id.clone());
        config.task_id = Some(task_id.clone());
        let config = Arc::new(config);
        let mut tasks = self.lock();
        let receivers = tasks.get_or_insert_mut(task_id.clone(), Receivers::default);
        match receivers.position(&id) {
            Ok(known) => {
                self.notifier.remove(task_id, &id);
                if let Some(slot) = receivers.configs.get_mut(known) {
                    *slot = Arc::clone(&config);
                }
            }
            Err(_) if receivers.configs.len() >= MAX_CONFIGS => {
                return Err(A2aError::invalid_params(format!(
                    "the task has {MAX_CONFIGS} configs already; delete one"
                )));
            }
            Err(place) => receivers.configs.insert(place, Arc::clone(&config)),
        }
        if let Some(reader) = reader
            && !std::mem::replace(&mut receivers.is_forwarded, true)
        {
            tokio::spawn(Arc::clone(self).forward(task_id.clone(), reader));
        }
        Ok(config)
    }

    /// Sends each event to whoever is registered when it comes.
    async fn forward(self: Arc<Self>, task_id: TaskId, mut reader: LogReader) {
        loop {
            let event = tokio::select! {
                biased;
                event = reader.next() => event,
                () = self.closing.cancelled() => None,
            };
            let Some(event) = event else { break };
            let configs = self.lock().peek(&task_id).map(|receivers| receivers.configs.clone()).unwrap_or_default();
            self.notifier.send(&task_id, &configs, &outgoing(&event));
        }
        if let Some(receivers) = self.lock().peek_mut(&task_id) {
            receivers.is_forwarded = false;
        }
    }

    /// A config by its id. Of an unknown one the error is that of an unknown task.
    pub(crate) fn get(&self, task_id: &TaskId, id: &str) -> Result<Config, A2aError> {
        let found = self.lock().get(task_id).and_then(|receivers| {
            // Clients of 0.3 may leave the id out, which means the first.
            let place = if id.is_empty() { Ok(0) } else { receivers.position(id) };
            receivers.configs.get(place.ok()?).cloned()
        });
        found.ok_or_else(|| A2aError::TaskNotFound { task_id: task_id.clone() })
    }

    /// One page in the order of the ids; the token is the last id of the page before.
    pub(crate) fn list(
        &self,
        request: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, A2aError> {
        let size = match usize::try_from(request.page_size) {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) => size.min(MAX_CONFIGS),
            Err(_) => return Err(A2aError::invalid_field("pageSize", "is negative")),
        };
        let configs = self.lock().get(&request.task_id).map(|receivers| receivers.configs.clone()).unwrap_or_default();
        let after = request.page_token.as_deref().unwrap_or_default();
        let mut rest = configs.iter().filter(|config| config.id.as_deref().unwrap_or_default() > after);
        let page: Vec<_> = rest.by_ref().take(size).map(|config| config.as_ref().clone()).collect();
        let next_page_token = rest.next().and_then(|_| page.last()).and_then(|last| last.id.clone());
        Ok(ListTaskPushNotificationConfigsResponse { configs: page, next_page_token })
    }

    /// Deleting what is not there is no error.
    pub(crate) fn delete(&self, task_id: &TaskId, id: &str) {
        self.notifier.remove(task_id, id);
        if let Some(receivers) = self.lock().get_mut(task_id)
            && let Ok(place) = receivers.position(id)
        {
            receivers.configs.remove(place);
        }
    }

    /// Delivers what waits, but not for long.
    pub(crate) async fn close(&self, patience: Duration) {
        self.notifier.close(patience).await;
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<TaskId, Receivers>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receivers {
    fn position(&self, id: &str) -> Result<usize, usize> {
        self.configs.binary_search_by(|config| config.id.as_deref().unwrap_or_default().cmp(id))
    }
}

fn outgoing(event: &LoggedEvent) -> Event {
    let json = Arc::clone(event.json());
    let rests = match event.event() {
        StreamResponse::StatusUpdate(update) => {
            update.status.state.is_terminal() || update.status.state.is_interrupted()
        }
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => false,
    };
    if rests { Event::last(json) } else { Event::update(json) }
}
