//! Tasks in memory, bounded by count and bytes.
//!
//! A running task is never dropped. Finished tasks are dropped first, the oldest of the owner with the largest share.
//! Without finished tasks, waiting tasks are dropped.

mod messages;
mod shares;
mod table;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_protocol::{Message, Owner, TaskId, TaskPushNotificationConfig, TaskState, Timestamp};
use async_trait::async_trait;

use crate::key;
use crate::page::{cut, fitting};
use crate::record::{end, is_abandoned_by_crash};
use crate::{
    ConfigPage, Creator, MessageKey, Place, Remembered, Retention, StoreError, StoredEvent, StoredTask, TaskEvent,
    TaskPage, TaskQuery, TaskSnapshot, TaskStore, WaitingBounds, WaitingWatcher,
};
use table::{Entry, Notice, Table};

/// Bounds on the content of a [`MemoryTaskStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The largest number of tasks. The store remembers four times as many messages.
    pub max_tasks: usize,
    /// Bytes of all tasks, events, configs and answers to messages: of their texts and of the values that hold the
    /// texts. Answers get at most a quarter.
    pub max_bytes: usize,
    /// The most tasks of one owner that may wait.
    pub waiting: WaitingBounds,
}

/// Tasks in memory, lost when the process ends.
///
/// Of a finished task only the task is kept, without its events.
///
/// A full store drops tasks of the owner with the largest share, oldest first: finished tasks, and when none are left,
/// waiting tasks. An owner with a smaller share than the writing owner loses no task. If no task can be dropped, the
/// store refuses new tasks and further events, except an event that finishes its task. The running tasks of one owner,
/// which are never dropped, get at most three quarters of the store.
pub struct MemoryTaskStore {
    table: Mutex<Table>,
    watcher: OnceLock<Arc<dyn WaitingWatcher>>,
}

impl fmt::Debug for MemoryTaskStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemoryTaskStore").field("table", &self.table).finish_non_exhaustive()
    }
}

impl MemoryTaskStore {
    /// An empty store.
    pub fn new(bounds: MemoryBounds) -> Self {
        Self { table: Mutex::new(Table::new(bounds)), watcher: OnceLock::new() }
    }

    /// Changes the table, and notifies the watcher of the effects on waiting tasks.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let (changed, notices) = {
            let mut table = self.lock();
            (change(&mut table), table.take_notices())
        };
        // The table is unlocked by now, because the watcher may call the store.
        for notice in notices {
            let Some(watcher) = self.watcher.get() else { break };
            match notice {
                Notice::Gone(task) => watcher.gone(&task),
                Notice::Surplus(owner, task) => watcher.is_surplus(&owner, &task),
            }
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TaskStore for MemoryTaskStore {
    async fn create(
        &self,
        owner: &Owner,
        events: &[TaskEvent],
        task: &TaskSnapshot,
        _turn: Creator<'_>,
    ) -> Result<Place, StoreError> {
        key::check_owner(owner)?;
        key::check_name("task id", task.id().as_str())?;
        key::check("context id", task.context_id().as_str())?;
        let entry = Entry::new(owner.clone(), events, task)?;
        self.change(|table| table.insert(entry))?;
        Ok(Place::after(events.len() as u64))
    }

    async fn append(
        &self,
        id: &TaskId,
        at: &Place,
        events: &[TaskEvent],
        task: &TaskSnapshot,
    ) -> Result<Place, StoreError> {
        self.change(|table| table.append(id, at.seq, events, task)).map(Place::after)
    }

    async fn load(&self, owner: &Owner, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let table = self.lock();
        let entry = table.tasks.get(id).filter(|entry| entry.owner == *owner);
        Ok(entry.map(Entry::stored))
    }

    async fn exists(&self, owner: &Owner, id: &TaskId) -> Result<bool, StoreError> {
        Ok(self.lock().tasks.get(id).is_some_and(|entry| entry.owner == *owner))
    }

    async fn events_after(&self, id: &TaskId, seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let table = self.lock();
        let Some(entry) = table.tasks.get(id) else { return Ok(Vec::new()) };
        let seen = usize::try_from(seq).unwrap_or(usize::MAX);
        Ok(entry.events_after(seen).take(limit).collect())
    }

    async fn list(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        let table = self.lock();
        let mut found: Vec<_> = table.matching(owner, query).collect();
        let total = found.len() as u64;
        // Only now: the total is that of all pages.
        found.retain(|(cursor, _)| query.after.as_ref().is_none_or(|after| cursor < after));
        found.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        let fitting = fitting(found.iter().take(query.limit).map(|(_, entry)| entry.task_bytes()));
        let next = cut(&mut found, query.limit.min(fitting), |(cursor, _)| cursor.clone());
        let tasks = found.iter().map(|(_, entry)| entry.stored()).collect();
        Ok(TaskPage { tasks, next, total })
    }

    async fn put_config(&self, id: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), StoreError> {
        let config_id = config.id.as_deref().unwrap_or_default();
        key::check_name("push notification config id", config_id)?;
        let json = serde_json::to_string(config)?;
        self.change(|table| table.put_config(id, config_id, json))
    }

    async fn config(&self, id: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError> {
        let table = self.lock();
        let json = table.tasks.get(id).and_then(|entry| entry.configs.get(config));
        json.map(|json| stored_config(id, json)).transpose()
    }

    async fn configs(&self, id: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError> {
        let table = self.lock();
        let Some(entry) = table.tasks.get(id) else { return Ok(ConfigPage::default()) };
        let rest = entry.configs.iter().filter(|(config, _)| config.as_str() > after);
        let page = rest.take(limit.saturating_add(1)).map(|(_, json)| stored_config(id, json));
        let mut configs = page.collect::<Result<Vec<_>, _>>()?;
        let next = cut(&mut configs, limit, |config| config.id.clone().unwrap_or_default());
        Ok(ConfigPage { configs, next })
    }

    async fn delete_config(&self, id: &TaskId, config: &str) -> Result<(), StoreError> {
        self.lock().delete_config(id, config);
        Ok(())
    }

    async fn remember(&self, owner: &Owner, message: &MessageKey, task: &TaskId) -> Result<Remembered, StoreError> {
        key::check_owner(owner)?;
        key::check("context id", message.context.as_str())?;
        key::check_name("message id", message.message.as_str())?;
        key::check_name("task id", task.as_str())?;
        // One lock over the look and the claim, so that of any number of callers at once one is told `New`.
        self.lock().messages.remember(owner, message, task)
    }

    async fn answer(&self, owner: &Owner, message: &MessageKey, answer: &Message) -> Result<(), StoreError> {
        let answer = serde_json::to_string(answer)?;
        // Room for an answer may take a task that waits, of which the server has to hear.
        self.change(|table| table.answer(owner, message, answer));
        Ok(())
    }

    async fn forget(&self, owner: &Owner, message: &MessageKey) -> Result<(), StoreError> {
        self.lock().messages.forget(owner, message);
        Ok(())
    }

    async fn recover(&self, reason: &str) -> Result<Vec<TaskId>, StoreError> {
        let mut table = self.lock();
        let abandoned = table.tasks.values().filter(|entry| is_abandoned_by_crash(entry.standing.state));
        let mut abandoned: Vec<StoredTask> = abandoned.map(Entry::stored).collect();
        abandoned.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        for stored in &abandoned {
            let mut task = stored.decode()?.into_task();
            let event = end(&mut task, TaskState::Failed, Some(reason));
            // A single event that finishes its task fits into a full store, so recovery does not end half-way.
            table.append(&stored.id, stored.seq, &[event], &task.into())?;
        }
        // Nobody works on a message without a task and an answer any more, so that its sender may repeat it.
        table.forget_unclaimed(i64::MAX);
        Ok(abandoned.into_iter().map(|task| task.id).collect())
    }

    async fn overdue(
        &self,
        bounds: &WaitingBounds,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(Owner, TaskId)>, StoreError> {
        let before = bounds.waited_before(Timestamp::now().as_millis());
        Ok(self.lock().overdue(bounds, before, skip, limit))
    }

    async fn count(&self, tenant: &str) -> Result<u64, StoreError> {
        Ok(self.lock().count(tenant))
    }

    fn watch_waiting(&self, watcher: Arc<dyn WaitingWatcher>) {
        // Whoever came first stays.
        let _ = self.watcher.set(watcher);
    }

    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError> {
        Ok(self.lock().sweep_tenant(tenant, count))
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, StoreError> {
        let now = Timestamp::now().as_millis();
        let mut table = self.lock();
        let swept = table.sweep(retention.finished_before(now), retention.count);
        table.messages.sweep_answers(retention.finished_before(now), retention.count);
        table.forget_unclaimed(retention.remembered_before(now));
        Ok(swept)
    }
}

fn stored_config(task: &TaskId, json: &str) -> Result<TaskPushNotificationConfig, StoreError> {
    serde_json::from_str(json).map_err(|source| StoreError::Unreadable { task: task.clone(), source })
}
