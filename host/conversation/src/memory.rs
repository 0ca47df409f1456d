//! Conversations in memory: fast, bounded, and lost at a restart.
//!
//! The store keeps the present state of conversations and tasks and no log, because its content ends with the process.
//! Each method locks the store once, for a few microseconds.

pub(crate) mod bounds;
mod change;
mod claims;
mod conversations;
mod queues;
mod shares;
mod slot;
mod slot_key;
mod tasks;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{ContextId, TaskId, TaskPushNotificationConfig, Timestamp};
use async_trait::async_trait;

use crate::admin::{ConversationAdmin, ConversationQuery, Holdings};
use crate::claim::{self, Claim, Claimant, MessageKey};
use crate::configs::{ConfigError, ConfigStore};
use crate::entry::StoredEntry;
use crate::error::{AppendError, StoreError};
use crate::fence::{Fence, Leases, OneProcess};
use crate::history::{ConversationSnapshot, StoredArtifact, Window};
use crate::key::{ConversationKey, Owner, check_name};
use crate::limits::Limits;
use crate::page::{ConfigPage, TaskPage, TaskQuery, cut, fitting};
use crate::queue::{Departure, Entrance, LostTurn, Submission, TurnOfTask};
use crate::retention::{Retention, Swept};
use crate::store::{Append, Appended, ConversationStore, Position};
use crate::stored_task::StoredTask;
use annex_leases::Replica;
use bounds::MemoryBounds;
use change::Contents;

/// The maximum number of overdue tasks that one sweep returns.
const OVERDUE: usize = 100;

/// Conversations and tasks in memory.
pub struct MemoryStore {
    limits: Limits,
    leases: Arc<dyn Leases>,
    contents: Mutex<Contents>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What clients sent is not for logs.
        formatter.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store for one process.
    #[must_use]
    pub fn new(bounds: MemoryBounds) -> Self {
        Self::among_others(bounds, Arc::new(OneProcess))
    }

    /// An empty store that several replicas share. Only tests need this.
    #[must_use]
    pub fn among_others(bounds: MemoryBounds, leases: Arc<dyn Leases>) -> Self {
        Self { limits: bounds.limits, leases, contents: Mutex::new(Contents::new(&bounds)) }
    }

    /// Changes the store. Evicted conversations are freed after the unlock, so that no caller waits for that.
    fn change<T>(&self, change: impl FnOnce(&mut Contents, &dyn Leases) -> T) -> T {
        let mut contents = self.lock();
        let changed = change(&mut contents, self.leases.as_ref());
        let evicted = contents.evict();
        drop(contents);
        drop(evicted);
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // A panic while the lock was held is a bug in this crate; the other conversations are still worth serving.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ConversationStore for MemoryStore {
    async fn claim(
        &self,
        owner: &Owner,
        message: &MessageKey,
        task: &TaskId,
        by: &Claimant,
    ) -> Result<Claim, AppendError> {
        claim::check_names(owner, message, task)?;
        Ok(self.lock().claims.claim(owner, message, task, (by, self.leases.as_ref())))
    }

    async fn release(&self, owner: &Owner, message: &MessageKey, by: &Claimant) -> Result<(), StoreError> {
        self.lock().claims.release(owner, message, by);
        Ok(())
    }

    async fn enter(
        &self,
        key: &ConversationKey,
        submission: Submission,
        window: Window,
    ) -> Result<Entrance, AppendError> {
        key.check()?;
        check_name("task id", submission.task.as_str())?;
        self.lock().enter(key, submission, (window, self.leases.as_ref()))
    }

    async fn wait(
        &self,
        key: &ConversationKey,
        fence: &Fence,
        window: Window,
    ) -> Result<ConversationSnapshot, AppendError> {
        loop {
            let moved = {
                let mut contents = self.lock();
                match contents.queues.index(key, fence) {
                    None => return Err(AppendError::Fenced),
                    Some(0) => return Ok(contents.read(key, window)),
                    Some(_) => contents.queues.moved(key, fence).ok_or(AppendError::Fenced)?,
                }
            };
            moved.notified().await;
        }
    }

    async fn leave(&self, key: &ConversationKey, fence: &Fence, departure: Departure) -> Result<(), StoreError> {
        self.change(|contents, _| contents.leave(key, fence, departure));
        Ok(())
    }

    async fn append(&self, key: &ConversationKey, at: &Position, append: Append<'_>) -> Result<Appended, AppendError> {
        self.change(|contents, leases| contents.append(key, at, append, leases))
    }

    async fn entries_after(
        &self,
        task: &TaskId,
        after: u64,
        (limit, _bytes): (usize, usize),
    ) -> Result<Vec<StoredEntry>, StoreError> {
        // The entries are in memory already, so the limit on bytes does not matter.
        Ok(self.lock().tasks.entries_after(task, after, limit))
    }

    async fn conversation(&self, key: &ConversationKey, window: Window) -> Result<ConversationSnapshot, StoreError> {
        Ok(self.lock().read(key, window))
    }

    async fn artifact(&self, key: &ConversationKey, name: &str) -> Result<Option<StoredArtifact>, StoreError> {
        Ok(self.lock().conversations.artifact(key, name))
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        Ok(self.lock().tasks.stored(id))
    }

    async fn tasks(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        let contents = self.lock();
        let mut found = contents.tasks.matching(owner, query);
        let total = found.len() as u64;
        // Only after the total was computed, because the total covers all pages.
        found.retain(|(cursor, _)| query.after.as_ref().is_none_or(|after| cursor < after));
        found.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        let fitting = fitting(found.iter().take(query.limit).map(|(_, bytes)| *bytes));
        let next = cut(&mut found, query.limit.min(fitting), |(cursor, _)| cursor.clone());
        let tasks = found.iter().filter_map(|(cursor, _)| contents.tasks.stored(&cursor.id)).collect();
        Ok(TaskPage { tasks, next, total })
    }

    async fn changed(&self, known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError> {
        let contents = self.lock();
        let last = |id: &TaskId| contents.tasks.has(id).then(|| contents.tasks.number(id));
        let changed = known.iter().map(|(id, number)| (id, last(id), *number));
        Ok(changed.filter(|(_, last, number)| *last != Some(*number)).map(|(id, last, _)| (id.clone(), last)).collect())
    }

    async fn cancel(&self, task: &TaskId) -> Result<Option<TurnOfTask>, StoreError> {
        Ok(self.lock().cancel(task, self.leases.as_ref()))
    }

    async fn turns_to_stop(&self, running: &[(TaskId, Fence)]) -> Result<Vec<TaskId>, StoreError> {
        let mut contents = self.lock();
        let to_stop = running.iter().filter(|(task, fence)| contents.is_to_stop(task, fence));
        Ok(to_stop.map(|(task, _)| task.clone()).collect())
    }

    async fn take(&self, task: &TaskId, from: &Fence, by: &Replica) -> Result<Option<LostTurn>, StoreError> {
        Ok(self.lock().take(task, from, (by, self.leases.as_ref())))
    }

    async fn take_lost(&self, by: &Replica, limit: usize) -> Result<Vec<LostTurn>, StoreError> {
        Ok(self.change(|contents, leases| contents.take_lost((by, limit), leases)))
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        let now = Timestamp::now().as_millis();
        let mut contents = self.lock();
        let swept = contents.sweep(retention, now);
        let overdue = contents.tasks.overdue(&retention.waiting, now, OVERDUE);
        Ok(Swept { overdue, ..swept })
    }

    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError> {
        Ok(self.lock().sweep_tenant(tenant, count))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

#[async_trait]
impl ConversationAdmin for MemoryStore {
    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationSnapshot>, StoreError> {
        Ok(self.lock().conversations.list(query))
    }

    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        Ok(self.lock().conversations.users_in((tenant, app, context), limit))
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let mut contents = self.lock();
        contents.queues.orphan(key);
        Ok(contents.conversations.delete(key))
    }

    async fn delete_key(&self, owner: &ConversationKey, full_key: &str) -> Result<bool, StoreError> {
        Ok(self.lock().conversations.delete_key(owner, full_key))
    }

    async fn delete_user_state(&self, owner: &ConversationKey) -> Result<u64, StoreError> {
        Ok(self.lock().conversations.delete_user_state(owner))
    }

    async fn holdings(&self, tenant: &str) -> Result<Holdings, StoreError> {
        let contents = self.lock();
        let (conversations, state_bytes) = contents.conversations.holdings(tenant);
        let (tasks, turns) = (contents.tasks.count(tenant), contents.queues.count(tenant));
        Ok(Holdings { conversations, state_bytes, tasks, turns })
    }
}

#[async_trait]
impl ConfigStore for MemoryStore {
    async fn put_config(&self, task: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), ConfigError> {
        let id = config.id.as_deref().unwrap_or_default();
        check_name("push notification config id", id).map_err(AppendError::from)?;
        let json = serde_json::to_string(config).map_err(StoreError::from).map_err(AppendError::from)?;
        self.lock().tasks.put_config(task, id, json)
    }

    async fn config(&self, task: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError> {
        let contents = self.lock();
        let json = contents.tasks.get(task).and_then(|slot| slot.configs.get(config));
        json.map(|json| stored_config(task, json)).transpose()
    }

    async fn configs(&self, task: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError> {
        let contents = self.lock();
        let Some(slot) = contents.tasks.get(task) else { return Ok(ConfigPage::default()) };
        let rest = slot.configs.iter().filter(|(config, _)| config.as_str() > after);
        let page = rest.take(limit.saturating_add(1)).map(|(_, json)| stored_config(task, json));
        let mut configs = page.collect::<Result<Vec<_>, _>>()?;
        let next = cut(&mut configs, limit, |config| config.id.clone().unwrap_or_default());
        Ok(ConfigPage { configs, next })
    }

    async fn delete_config(&self, task: &TaskId, config: &str) -> Result<(), StoreError> {
        self.lock().tasks.delete_config(task, config);
        Ok(())
    }
}

fn stored_config(task: &TaskId, json: &str) -> Result<TaskPushNotificationConfig, StoreError> {
    serde_json::from_str(json).map_err(|source| StoreError::unreadable_task(task, source))
}
