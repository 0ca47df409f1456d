//! Keeps the live tasks of this server in memory. The store has all tasks, including the live tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_conversation::{
    AppendError, Appended, ConversationKey, ConversationStore, Retention, StoreError, StoredTask, TaskLimits,
    TaskSnapshot,
};
use annex_fairness::of_same_tenant;
use annex_leases::wake::Wake;
use annex_protocol::{A2aError, Message, Owner, Part, StreamResponse, TaskId, TaskState, TaskStatus, Timestamp};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::process::Process;
use crate::tasks::long_work::LongWork;
use crate::tasks::pins::Pins;
use crate::tasks::queues::{WaitingQueues, WaitingTurn};
use crate::tasks::record::TaskRecord;
use crate::views::scoped_keys::ScopedKeys;

mod backlog;
mod cancellation;
mod catch_up;
mod interrupted;
pub mod list;
pub mod log;
pub(crate) mod long_work;
mod lost;
mod others;
pub mod pins;
mod queues;
mod read;
pub(crate) mod reading;
pub(crate) mod record;
pub(crate) mod running_turn;
pub(crate) mod shown;
pub(crate) mod task_pins;

/// Above this number of live tasks, unused tasks are removed from memory.
const CROWD: usize = 1_024;
/// The time between two sweeps of old tasks and conversations.
const SWEEP: Duration = Duration::from_secs(60 * 60);
/// The time between two sweeps of keys whose task or conversation was deleted.
const SWEEP_KEYS: Duration = Duration::from_secs(60);

/// The maximum number of overdue tasks that a sweep returns.
const OVERDUE: usize = 100;
/// The status message of a task that waited too long for its client.
const UNHEARD: &str = "The task waited for too long, or too many tasks waited; send the message again without taskId.";
/// The status message of a task that was ended because its owner has too many waiting tasks.
const CROWDED_OUT: &str =
    "Too many of your tasks wait, and this one for longest; send the message again without taskId.";

/// The tasks of this server.
pub struct Tasks {
    store: Arc<dyn ConversationStore>,
    process: Process,
    live: Mutex<Live>,
    pins: Arc<Pins>,
    /// The limits on tasks. A reload of the config replaces them.
    bounds: Mutex<TaskBounds>,
    /// Notifies other processes of stored events, and receives their notifications.
    wake: Arc<dyn Wake>,
    queues: WaitingQueues,
}

/// The limits on the size of a task, and on the age and number of stored tasks and conversations.
#[derive(Clone, Copy)]
pub struct TaskBounds {
    /// The limits on the size of one task.
    pub limits: TaskLimits,
    /// The limits on stored conversations and finished tasks, and on tasks that wait for their clients.
    pub retention: Retention,
}

struct Live {
    records: HashMap<TaskId, Arc<TaskRecord>>,
    /// The number of records above which unused records are removed.
    crowd: usize,
}

impl Live {
    /// Makes the record of a stored task available to requests. If another request has made a record of the task in the
    /// meantime, that record stays. Returns the record that is available, so that a task never has two records.
    fn share(&mut self, record: Arc<TaskRecord>) -> Arc<TaskRecord> {
        if let Some(other) = self.records.get(record.id()) {
            return Arc::clone(other);
        }
        self.insert(&record);
        record
    }

    fn insert(&mut self, record: &Arc<TaskRecord>) {
        self.records.insert(record.id().clone(), Arc::clone(record));
        if self.records.len() > self.crowd {
            // Records are handed out only under the lock of all, so a record without further references has no user.
            self.records.retain(|_, record| Arc::strong_count(record) > 1 || record.has_readers());
            // The limit doubles, so that a table full of used records is not searched at every insertion.
            self.crowd = CROWD.max(self.records.len().saturating_mul(2));
        }
    }
}

impl Tasks {
    /// Creates the tasks of the server over their store.
    pub fn new(
        (store, process): (Arc<dyn ConversationStore>, Process),
        pins: Arc<Pins>,
        bounds: TaskBounds,
        wake: Arc<dyn Wake>,
    ) -> Arc<Self> {
        let live = Mutex::new(Live { records: HashMap::new(), crowd: CROWD });
        let (bounds, queues) = (Mutex::new(bounds), WaitingQueues::default());
        Arc::new(Self { store, process, live, pins, bounds, wake, queues })
    }

    pub(crate) fn store(&self) -> &Arc<dyn ConversationStore> {
        &self.store
    }

    /// The identity of this process among the processes that share the store.
    pub fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn wake(&self) -> &Arc<dyn Wake> {
        &self.wake
    }

    /// The limits on the size of a task.
    pub(crate) fn limits(&self) -> TaskLimits {
        self.bounds().limits
    }

    fn bounds(&self) -> TaskBounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the bounds, for tasks that are read or created from now on and for the next sweep.
    pub fn set_bounds(&self, bounds: TaskBounds) {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = bounds;
    }

    /// Checks that the store answers, with a small read.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.store.probe().await
    }

    /// Closes the store. Called after the last use of the tasks.
    pub async fn close(&self) {
        // While the lease holds, no other process takes what this one still stores.
        self.store.close().await;
        self.process.end().await;
    }

    /// The versions of extensions that waiting tasks have pinned.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The stored task, without decoding it.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    pub(crate) async fn load(&self, owner: &Owner, id: &TaskId) -> Result<StoredTask, A2aError> {
        tell_of(id);
        let stored = self.store.task(id).await.map_err(fault::of_store)?;
        stored.filter(|task| task.is_of(owner)).ok_or_else(|| A2aError::TaskNotFound { task_id: id.clone() })
    }

    /// The task in memory, if it is live and large. Reading and decoding such a task from the store for each request
    /// would cost too much.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn large_snapshot(&self, owner: &Owner, id: &TaskId) -> Result<Option<TaskSnapshot>, A2aError> {
        let Some(record) = self.live_record(owner, id).filter(|record| record.snapshot().is_large()) else {
            return Ok(None);
        };
        if !record.is_running() {
            let known = [(id.clone(), u64::MAX)];
            let is_deleted = self.store.changed(&known).await.map_err(fault::of_store)?;
            if is_deleted.iter().any(|(_, last)| last.is_none()) {
                return Err(A2aError::TaskNotFound { task_id: id.clone() });
            }
            record.refresh().await.map_err(fault::of_store)?;
            self.leave_if_finished(&record);
        }
        Ok(Some(record.snapshot()))
    }

    /// Checks that the task exists and belongs to the owner.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    pub(crate) async fn check_exists(&self, owner: &Owner, id: &TaskId) -> Result<(), A2aError> {
        self.load(owner, id).await.map(drop)
    }

    /// The record of the task. All users of an unfinished task share one record.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    pub(crate) async fn open(&self, owner: &Owner, id: &TaskId) -> Result<Arc<TaskRecord>, A2aError> {
        tell_of(id);
        let found = self.find(id).await.map_err(fault::of_store)?;
        let record = found.filter(|record| record.owner() == owner);
        let record = record.ok_or_else(|| A2aError::TaskNotFound { task_id: id.clone() })?;
        annex_telemetry::with(|request| request.is_about(Some(record.context_id().clone().into()), None));
        Ok(record)
    }

    /// The record of a task of any owner. `None` if the task does not exist.
    async fn find(&self, id: &TaskId) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        let live = self.live().records.get(id).cloned();
        if let Some(record) = live {
            // A running turn knows the task. Without a turn the record is refreshed here.
            if !record.is_running() {
                record.refresh().await?;
                self.leave_if_finished(&record);
            }
            return Ok(Some(record));
        }
        let Some(stored) = self.store.task(id).await? else { return Ok(None) };
        let long = LongWork::begin(stored.bytes()).await;
        let record = Arc::new(TaskRecord::stored(&stored, self)?);
        drop(long);
        Ok(Some(if record.is_finished() { record } else { self.live().share(record) }))
    }

    fn live_record(&self, owner: &Owner, id: &TaskId) -> Option<Arc<TaskRecord>> {
        self.live().records.get(id).filter(|record| record.owner() == owner).cloned()
    }

    /// Makes a record available to requests.
    pub(crate) fn insert(&self, record: &Arc<TaskRecord>) {
        self.live().insert(record);
    }

    /// Removes a finished task from memory. Later requests read the task from the store.
    pub(crate) fn leave_if_finished(&self, record: &Arc<TaskRecord>) {
        if record.is_finished() {
            self.pins.release(record.id());
            self.remove(record);
        }
    }

    /// Makes a record unavailable to requests.
    pub(crate) fn remove(&self, record: &Arc<TaskRecord>) {
        let mut live = self.live();
        if live.records.get(record.id()).is_some_and(|found| Arc::ptr_eq(found, record)) {
            live.records.remove(record.id());
        }
    }

    /// Sweeps periodically until `stop` is cancelled. Keys of extensions are swept after the tasks and conversations that
    /// they belong to.
    pub async fn keep_house(self: &Arc<Self>, keys: &ScopedKeys, stop: CancellationToken) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut sweep_keys = tokio::time::interval(SWEEP_KEYS);
        loop {
            tokio::select! {
                // `biased`: keys are swept in the same round as the tasks and conversations that they belong to.
                biased;
                () = stop.cancelled() => return,
                _ = sweep.tick() => {
                    if let Err(error) = self.sweep().await {
                        fault::log(&error);
                    }
                }
                _ = sweep_keys.tick() => {
                    if let Err(error) = keys.sweep().await {
                        fault::log(&error);
                    }
                }
            }
        }
    }

    /// Deletes conversations and finished tasks that are beyond the limits on age and number, and ends tasks that have waited
    /// for too long.
    async fn sweep(self: &Arc<Self>) -> Result<(), StoreError> {
        self.process.forget_gone().await?;
        loop {
            let swept = self.store.sweep(&self.bounds().retention).await?;
            if swept.tasks + swept.conversations > 0 {
                let (tasks, conversations) = (swept.tasks, swept.conversations);
                tracing::info!(target: crate::LOG_TARGET, tasks, conversations, "swept finished tasks and old conversations");
            }
            let mut ended = 0;
            for id in &swept.overdue {
                ended += usize::from(self.end_waiting(id, UNHEARD).await?);
            }
            if ended > 0 {
                tracing::info!(target: crate::LOG_TARGET, tasks = ended, "failed tasks that waited for too long");
            }
            // Tasks that cannot be ended stay overdue.
            if swept.overdue.len() < OVERDUE || ended == 0 {
                return Ok(());
            }
        }
    }

    /// Fails a waiting task with the reason. Readers get the failure as a normal end. Returns true if this call ended
    /// the task.
    async fn end_waiting(self: &Arc<Self>, id: &TaskId, reason: &str) -> Result<bool, StoreError> {
        let found = match self.find(id).await {
            Err(error @ StoreError::Unreadable { .. }) => {
                tracing::error!(target: crate::LOG_TARGET, task = %id, %error, "a task that waits cannot be read and is not ended");
                return Ok(false);
            }
            found => found?,
        };
        let Some(record) = found.filter(|record| !record.is_running()) else { return Ok(false) };
        let seen = record.numbered();
        if seen.0.state().is_terminal() {
            return Ok(false);
        }
        match self.append_alone(&record, seen, failed(&record, reason)).await {
            Ok(()) => Ok(record.is_finished()),
            Err(AppendError::Store(error)) => Err(error),
            // The task was deleted, or has gone on.
            Err(_) => Ok(false),
        }
    }

    /// Stores an update of a task that no turn works on. Refuses the update if the task has changed since the caller read it
    /// (`seen`).
    pub(crate) async fn append_alone(
        self: &Arc<Self>,
        record: &Arc<TaskRecord>,
        seen: (TaskSnapshot, u64),
        update: StreamResponse,
    ) -> Result<(), AppendError> {
        let appended = record.append_alone(seen, update).await?;
        self.follow(&appended);
        self.leave_if_finished(record);
        Ok(())
    }

    /// Handles the effects of an append on other tasks: drops deleted tasks from memory, and ends the oldest waiting task of an
    /// owner with too many waiting tasks.
    pub(crate) fn follow(self: &Arc<Self>, appended: &Appended) {
        appended.displaced.iter().for_each(|task| self.let_go(task));
        let (Some(surplus), Ok(runtime)) = (appended.surplus.clone(), Handle::try_current()) else { return };
        let tasks = Arc::clone(self);
        // Ending the task needs locks that the caller may hold, so it runs as a task of its own.
        runtime.spawn(of_same_tenant(async move {
            if let Err(error) = tasks.end_waiting(&surplus, CROWDED_OUT).await {
                fault::log(&error);
            }
        }));
    }

    /// Drops a deleted task from memory.
    pub(crate) fn let_go(&self, id: &TaskId) {
        self.pins.release(id);
        let record = self.live().records.remove(id);
        if let Some(record) = record {
            record.break_off(A2aError::TaskNotFound { task_id: id.clone() });
        }
    }

    /// Registers a waiting turn, so that hints about the queue of its conversation reach the turn. Dropping the result
    /// ends the registration.
    pub(crate) fn waits_in(&self, key: &ConversationKey) -> WaitingTurn<'_> {
        self.queues.wait(key)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(record: &TaskRecord, reason: &str) -> StreamResponse {
    let message = Message::agent(record.context_id().clone(), Some(record.id().clone()), vec![Part::text(reason)]);
    let status = TaskStatus { state: TaskState::Failed, message: Some(message), timestamp: Some(Timestamp::now()) };
    StreamResponse::StatusUpdate(record.status_event(status))
}

/// Adds the task of a request to its log lines, even if the task does not exist.
fn tell_of(id: &TaskId) {
    annex_telemetry::with(|request| request.is_about(None, Some(id.clone().into())));
}
