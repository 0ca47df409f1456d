//! The tasks of this server: the live ones in memory, on top of the store that has all of them.

use std::collections::HashMap;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use annex_fairness::of_same_tenant;
use annex_leases::Replica;
use annex_leases::wake::Wake;
use annex_protocol::{A2aError, Message, Owner, Part, StreamResponse, Task, TaskId, TaskState, TaskStatus, Timestamp};
use annex_tasks::{
    Creator, Retention, StoreError, StoredTask, TaskEvent, TaskLimits, TaskSnapshot, TaskStore, WaitingBounds,
    WaitingWatcher,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::keyed_locks::KeyedLocks;
use crate::tasks::long_work::LongWork;
use crate::tasks::pins::Pins;
use crate::tasks::record::{Subscription, TaskRecord};
use crate::tasks::session_sweep::SessionSweep;
use crate::views::scoped_keys::ScopedKeys;

mod backlog;
mod cancel_elsewhere;
mod cancellation;
mod catch_up;
pub mod list;
pub mod log;
pub(crate) mod long_work;
mod lost;
pub mod others;
pub mod pins;
mod read;
pub(crate) mod record;
mod running_turn;
pub mod session_sweep;
mod stored_pins;

/// Above this number of live tasks, unused ones are removed from memory.
const CROWD: usize = 1_024;
/// The period of sweeping old tasks and sessions.
const SWEEP: Duration = Duration::from_secs(60 * 60);
/// The period of sweeping keys whose task or conversation was deleted.
const SWEEP_KEYS: Duration = Duration::from_secs(60);
/// The period of failing the tasks whose turn could not store its end.
const SETTLE: Duration = Duration::from_secs(60);
/// The status message of a task whose turn could not store its end.
const UNSTORED: &str = "The server could not store what the agent did; send the message again.";

/// The number of overdue tasks that one query returns.
const OVERDUE: usize = 100;
/// The status message of a task that waited too long for its client.
const UNHEARD: &str = "The task waited for too long, or too many tasks waited; send the message again without taskId.";
/// The status message of a task that was ended because its owner has too many waiting tasks.
const CROWDED_OUT: &str =
    "Too many of your tasks wait, and this one for longest; send the message again without taskId.";

/// The tasks of this server.
pub struct Tasks {
    store: Arc<dyn TaskStore>,
    live: Mutex<Live>,
    /// One lock per task id, held while a record is made, so that a task never has two records.
    locks: KeyedLocks,
    /// Tasks whose turn has ended without storing its end.
    unsettled: Mutex<HashMap<TaskId, Unsettled>>,
    pins: Arc<Pins>,
    /// A reload of the config replaces the bounds.
    bounds: Mutex<TaskBounds>,
    /// Notifies other processes of stored events, and receives their notifications.
    wake: Arc<dyn Wake>,
}

/// The limits on the size of a task, on waiting tasks, and on stored tasks.
#[derive(Clone, Copy)]
pub struct TaskBounds {
    /// The limits on the size of one task.
    pub limits: TaskLimits,
    /// The limits on the age and the number of tasks that wait for their clients.
    pub waiting: WaitingBounds,
    /// The limits on stored finished tasks.
    pub retention: Retention,
}

/// A task whose turn has ended without storing its end.
#[derive(Clone)]
struct Unsettled {
    owner: Owner,
    /// The replica of the turn. `None` if only one process can use the store.
    runner: Option<Replica>,
    /// The task's epoch in which the turn wrote. `None` if it is unknown.
    epoch: Option<u64>,
}

/// The turn that creates a task.
pub(crate) struct FirstTurn<'a> {
    /// Cancels the turn.
    pub(crate) cancel: CancellationToken,
    /// True if the turn's events have a reader.
    pub(crate) is_followed: bool,
    /// The replica id under which the turn began. `None` if only one process can use the store.
    pub(crate) runner: Option<Replica>,
    /// The data with which another process can continue the turn. `None` if the turn would fail instead.
    pub(crate) stored: Option<&'a str>,
}

struct Live {
    records: HashMap<TaskId, Arc<TaskRecord>>,
    /// The number of records at which unused ones are removed.
    crowd: usize,
}

impl Tasks {
    pub fn new(store: Arc<dyn TaskStore>, pins: Arc<Pins>, bounds: TaskBounds, wake: Arc<dyn Wake>) -> Arc<Self> {
        let live = Mutex::new(Live { records: HashMap::new(), crowd: CROWD });
        let locks = KeyedLocks::new();
        let (unsettled, bounds) = (Mutex::default(), Mutex::new(bounds));
        let tasks = Arc::new(Self { store, live, locks, unsettled, pins, bounds, wake });
        tasks.store.watch_waiting(Arc::new(Watcher(Arc::downgrade(&tasks))));
        tasks
    }

    pub(crate) fn store(&self) -> &Arc<dyn TaskStore> {
        &self.store
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
        self.store.close().await;
    }

    /// The versions of extensions that waiting tasks have pinned.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Stores a new task together with its first events. The subscription starts with the task as it was created, and
    /// has a reader if the turn's events have one.
    pub(crate) async fn create(
        &self,
        owner: &Owner,
        made: Task,
        events: &[TaskEvent],
        turn: FirstTurn<'_>,
    ) -> Result<(Arc<TaskRecord>, Subscription), StoreError> {
        let first = StreamResponse::Task(made.clone());
        let made = TaskSnapshot::from(made);
        let events: Vec<TaskEvent> = iter::once(TaskEvent::from(first)).chain(events.iter().cloned()).collect();
        let task = made.with(&events);
        task.check(&made, &self.limits()).map_err(|excess| StoreError::TooLarge { excess })?;
        // The lock is held until the record is in the table, so that no other record is made from the stored task.
        let _locked = self.locks.lock(task.id()).await;
        let begun = Creator { runner: turn.runner.as_ref(), turn: turn.stored };
        let place = match self.store.create(owner, &events, &task, begun).await {
            Ok(place) => place,
            Err(error) => {
                if matches!(error, StoreError::Database(_)) {
                    // The store may have created the task although it reported an error.
                    let unsettled = Unsettled { owner: owner.clone(), runner: turn.runner, epoch: Some(0) };
                    self.unsettled().insert(task.id().clone(), unsettled);
                }
                return Err(error);
            }
        };
        self.wake.tell(task.id().as_str(), events.len() as u64);
        let record = Arc::new(TaskRecord::new(owner.clone(), made, (place, turn.cancel), self));
        // The client subscribes before the events are shown, so that it reads them all.
        let subscription = record.subscribe();
        let subscription = Subscription { reader: subscription.reader.filter(|_| turn.is_followed), ..subscription };
        record.show_first(events.get(1..).unwrap_or_default(), task).await;
        // An earlier attempt to create the task may have left an entry.
        self.unsettled().remove(record.id());
        self.insert(&record);
        Ok((record, subscription))
    }

    /// The stored task, without decoding it.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    pub(crate) async fn load(&self, owner: &Owner, id: &TaskId) -> Result<StoredTask, A2aError> {
        tell_of(id);
        // A task whose turn has ended must not look as if it were running.
        self.settle(id).await.map_err(fault::of_store)?;
        let stored = self.store.load(owner, id).await.map_err(fault::of_store)?;
        stored.ok_or_else(|| A2aError::TaskNotFound { task_id: id.clone() })
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
            record.refresh().await.map_err(fault::of_store)?;
            self.leave_if_finished(&record);
            self.check_exists(owner, id).await?;
        }
        Ok(Some(record.snapshot()))
    }

    /// Checks that the task exists and belongs to the owner.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    pub(crate) async fn check_exists(&self, owner: &Owner, id: &TaskId) -> Result<(), A2aError> {
        tell_of(id);
        self.settle(id).await.map_err(fault::of_store)?;
        if self.store.exists(owner, id).await.map_err(fault::of_store)? {
            Ok(())
        } else {
            Err(A2aError::TaskNotFound { task_id: id.clone() })
        }
    }

    /// The record of the task. All users of an unfinished task share one record.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    pub(crate) async fn open(&self, owner: &Owner, id: &TaskId) -> Result<Arc<TaskRecord>, A2aError> {
        tell_of(id);
        let found = self.find(owner, id).await.map_err(fault::of_store)?;
        let record = found.ok_or_else(|| A2aError::TaskNotFound { task_id: id.clone() })?;
        annex_telemetry::with(|request| request.is_about(Some(record.context_id().clone().into()), None));
        Ok(record)
    }

    async fn find(&self, owner: &Owner, id: &TaskId) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        self.settle(id).await?;
        if let Some(record) = self.live_record(owner, id) {
            // A running turn notices events of other processes when it stores its own. Without a turn the record is
            // refreshed here.
            if !record.is_running() {
                record.refresh().await?;
                self.leave_if_finished(&record);
            }
            return Ok(Some(record));
        }
        let _locked = self.locks.lock(id).await;
        // The previous holder of the lock may have made the record.
        if let Some(record) = self.live_record(owner, id) {
            return Ok(Some(record));
        }
        let Some(stored) = self.store.load(owner, id).await? else { return Ok(None) };
        let long = LongWork::begin(stored.bytes()).await;
        let record = Arc::new(TaskRecord::stored(owner.clone(), &stored, self)?);
        drop(long);
        if !record.is_finished() {
            self.insert(&record);
        }
        Ok(Some(record))
    }

    fn live_record(&self, owner: &Owner, id: &TaskId) -> Option<Arc<TaskRecord>> {
        self.live().records.get(id).filter(|record| record.owner() == owner).cloned()
    }

    fn insert(&self, record: &Arc<TaskRecord>) {
        let mut live = self.live();
        live.records.insert(record.id().clone(), Arc::clone(record));
        if live.records.len() > live.crowd {
            // Records are handed out only under this lock, so a record without further references has no user.
            live.records.retain(|_, record| Arc::strong_count(record) > 1 || record.has_readers());
            // The limit doubles, so that a table full of used records is not searched at every insertion.
            live.crowd = CROWD.max(live.records.len().saturating_mul(2));
        }
    }

    /// Removes a finished task from memory. It is then read from the store.
    pub(crate) fn leave_if_finished(&self, record: &Arc<TaskRecord>) {
        if record.is_finished() {
            self.pins.release(record.id());
            self.remove(record);
        }
    }

    fn remove(&self, record: &Arc<TaskRecord>) {
        let mut live = self.live();
        if live.records.get(record.id()).is_some_and(|found| Arc::ptr_eq(found, record)) {
            live.records.remove(record.id());
        }
    }

    /// Gives up a task whose turn cannot store its end. Readers get all stored events and then the error. The task is
    /// failed once the store works again.
    pub(crate) fn abandon(&self, record: &Arc<TaskRecord>, error: &A2aError) {
        // This comes first: a request that no longer finds the record must find the entry for failing the task.
        self.end_later(record);
        self.pins.release(record.id());
        self.remove(record);
        record.break_off(error.clone());
    }

    /// Records that the turn of a task has ended without storing its end.
    fn end_later(&self, record: &TaskRecord) {
        let runner = record.runner().or(self.store.replica());
        let unsettled = Unsettled { owner: record.owner().clone(), runner, epoch: record.epoch() };
        self.unsettled().insert(record.id().clone(), unsettled);
    }

    /// Fails the task if its turn could not store its end.
    async fn settle(&self, id: &TaskId) -> Result<(), StoreError> {
        let _locked = self.locks.lock(id).await;
        // Checked under the lock, because a second attempt to create the task may have succeeded during the wait.
        let Some(Unsettled { owner, runner, epoch }) = self.unsettled().get(id).cloned() else { return Ok(()) };
        // After the end of the replica's lease, another process ends the task. In a later epoch, another turn owns it.
        let is_ours = |stored: &StoredTask| {
            runner.as_ref().is_none_or(|runner| !runner.is_over())
                && epoch.is_none_or(|epoch| stored.place().epoch == epoch)
        };
        if let Some(stored) = self.store.load(&owner, id).await?.filter(is_ours) {
            let record = TaskRecord::stored(owner, &stored, self)?;
            match record.append([failed(&record, UNSTORED)]).await {
                Ok(()) | Err(StoreError::Fenced { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.unsettled().remove(id);
        Ok(())
    }

    /// Ends tasks that have waited too long, and the oldest ones of owners with too many waiting tasks.
    ///
    /// # Errors
    /// When the store fails. Tasks that were ended before stay ended.
    async fn end_overdue(&self) -> Result<usize, StoreError> {
        let mut ended = 0;
        // The number of overdue tasks that cannot be ended, because a turn runs or they cannot be read.
        let mut left = 0;
        loop {
            let overdue = self.store.overdue(&self.bounds().waiting, left, OVERDUE).await?;
            for (owner, id) in &overdue {
                let is_ended = self.end_waiting(owner, id, UNHEARD).await?;
                ended += usize::from(is_ended);
                left += usize::from(!is_ended);
            }
            if overdue.len() < OVERDUE {
                return Ok(ended);
            }
        }
    }

    /// Fails a waiting task with the reason. Readers get that as a normal end. True if this call has ended the task.
    async fn end_waiting(&self, owner: &Owner, id: &TaskId, reason: &str) -> Result<bool, StoreError> {
        let found = match self.find(owner, id).await {
            Err(error @ StoreError::Unreadable { .. }) => {
                tracing::error!(target: crate::LOG_TARGET, task = %id, %error, "a task that waits cannot be read and is not ended");
                return Ok(false);
            }
            found => found?,
        };
        let Some(record) = found.filter(|record| !record.is_running() && record.task_state().is_interrupted()) else {
            return Ok(false);
        };
        match record.append([failed(&record, reason)]).await {
            Ok(()) => {}
            // The task was deleted, or its client has answered in another process.
            Err(StoreError::NotFound { .. } | StoreError::Fenced { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.leave_if_finished(&record);
        Ok(record.is_finished())
    }

    /// Drops a waiting task from memory, as if it had been deleted.
    fn let_go(&self, id: &TaskId) {
        self.pins.release(id);
        let record = self.live().records.remove(id);
        if let Some(record) = record {
            record.break_off(A2aError::TaskNotFound { task_id: id.clone() });
        }
    }

    /// Sweeps and settles periodically until `stop` is cancelled. Keys of extensions are swept after the tasks and
    /// sessions that they belong to.
    pub async fn keep_house(&self, sessions: &SessionSweep, keys: &ScopedKeys, stop: CancellationToken) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut sweep_sessions = tokio::time::interval(SWEEP);
        let mut sweep_keys = tokio::time::interval(SWEEP_KEYS);
        let mut settle = tokio::time::interval(SETTLE);
        loop {
            tokio::select! {
                // `biased`: keys are swept in the same round as the tasks and sessions that they belong to.
                biased;
                () = stop.cancelled() => return,
                _ = sweep.tick() => self.sweep().await,
                _ = sweep_sessions.tick() => sessions.run().await,
                _ = sweep_keys.tick() => {
                    if let Err(error) = keys.sweep().await {
                        fault::log(&error);
                    }
                }
                _ = settle.tick() => {
                    let unsettled: Vec<TaskId> = self.unsettled().keys().cloned().collect();
                    for id in unsettled {
                        if let Err(error) = self.settle(&id).await {
                            fault::log(&error);
                        }
                    }
                }
            }
        }
    }

    async fn sweep(&self) {
        match self.end_overdue().await {
            Ok(0) => {}
            Ok(tasks) => tracing::info!(target: crate::LOG_TARGET, tasks, "failed tasks that waited for too long"),
            Err(error) => fault::log(&error),
        }
        match self.store.sweep(&self.bounds().retention).await {
            Ok(0) => {}
            Ok(tasks) => tracing::info!(target: crate::LOG_TARGET, tasks, "swept finished tasks"),
            Err(error) => fault::log(&error),
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsettled(&self) -> MutexGuard<'_, HashMap<TaskId, Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives the store's notifications about waiting tasks.
struct Watcher(Weak<Tasks>);

impl WaitingWatcher for Watcher {
    fn gone(&self, task: &TaskId) {
        if let Some(tasks) = self.0.upgrade() {
            tasks.let_go(task);
        }
    }

    fn is_surplus(&self, owner: &Owner, task: &TaskId) {
        let (Some(tasks), Ok(runtime)) = (self.0.upgrade(), Handle::try_current()) else { return };
        let owner = owner.clone();
        let task = task.clone();
        // Ending the task needs locks that the caller may hold, so it runs as a task of its own.
        runtime.spawn(of_same_tenant(async move {
            if let Err(error) = tasks.end_waiting(&owner, &task, CROWDED_OUT).await {
                fault::log(&error);
            }
        }));
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
