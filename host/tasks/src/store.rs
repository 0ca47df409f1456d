//! The contract of a task store.

use std::sync::Arc;
use std::time::Duration;

use annex_leases::Replica;
use annex_protocol::{Message, Owner, TaskId, TaskPushNotificationConfig};
use async_trait::async_trait;

use crate::{
    AskedRunner, ConfigPage, Creator, LostTasks, MessageKey, PinStore, Place, PushCursors, Remembered, StoreError,
    StoredEvent, StoredTask, TaskEvent, TaskPage, TaskQuery, TaskSnapshot,
};

/// The largest number of push notification configs of one task.
pub const MAX_PUSH_CONFIGS: usize = 100;

/// Which finished tasks stay. Tasks that are not finished always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The longest time that a task stays after its final status. [`Duration::MAX`] for ever.
    pub age: Duration,
    /// The most finished tasks of one tenant that stay, of all its callers together. [`u64::MAX`] for all.
    pub count: u64,
}

/// Bounds on how long tasks may wait for their client, and on how many may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingBounds {
    /// The longest time for which a task may wait. [`Duration::MAX`] for ever.
    pub age: Duration,
    /// The most tasks of one owner that may wait.
    pub per_owner: usize,
    /// The most tasks that may wait of an owner without a principal, whom all anonymous clients share.
    pub anonymous: usize,
}

/// Receives notices from a store about waiting tasks. The server implements the trait.
pub trait WaitingWatcher: Send + Sync + 'static {
    /// A waiting task was dropped to make room. The effect is the same as of a deletion.
    fn gone(&self, task: &TaskId);

    /// The owner has one waiting task too many, of which this is the oldest. It is still there.
    fn is_surplus(&self, owner: &Owner, task: &TaskId);
}

/// Keeps tasks with their events, configs and messages.
///
/// A task row and the events that changed the row are stored together or not at all. Events of a task are numbered from
/// 1 without gaps. Methods that take no [`Owner`] rely on their caller to have loaded the task as its owner. When a
/// call is dropped before it is ready, its change may be stored or not, but never in part.
///
/// Every method returns [`StoreError::Database`] when the database fails; the methods below do not repeat this.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Stores a new task with its first events: `task` is the task after all these events. Event 1 is the task as it
    /// was created, so that the events contain the whole task. Returns the place for the first turn.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], [`StoreError::Fenced`] when the lease of the replica has ended,
    /// [`StoreError::InvalidKey`], and [`StoreError::Full`] from the memory store.
    async fn create(
        &self,
        owner: &Owner,
        events: &[TaskEvent],
        task: &TaskSnapshot,
        turn: Creator<'_>,
    ) -> Result<Place, StoreError>;

    /// Appends `events` after the place, replaces the task by `task`, and returns the next place of the writer. All of
    /// this happens or nothing. Id, owner and context of a task never change. A message of the client begins a turn,
    /// and in a [shared store](Self::is_shared) another epoch.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when the place is not after the last event, [`StoreError::Fenced`] when its epoch has
    /// ended, [`StoreError::NotFound`], and [`StoreError::Full`] from the memory store, which always has room for a
    /// single event that finishes its task.
    async fn append(
        &self,
        id: &TaskId,
        at: &Place,
        events: &[TaskEvent],
        task: &TaskSnapshot,
    ) -> Result<Place, StoreError>;

    /// Takes an unfinished task, so that this process works on the task from now on, in another epoch. Returns the
    /// place for the next event. `None` if the task is finished or the epoch has ended; then nothing changes.
    ///
    /// # Errors
    /// Only those of the database.
    async fn take(&self, _id: &TaskId, _epoch: u64) -> Result<Option<Place>, StoreError> {
        Ok(None)
    }

    /// Asks the process that works on the task to cancel the task. Returns the epoch of the turn and the state of the
    /// process; `None` if no process works on the task.
    ///
    /// # Errors
    /// Only those of the database.
    async fn ask_to_cancel(&self, _id: &TaskId) -> Result<Option<AskedRunner>, StoreError> {
        Ok(None)
    }

    /// Filters the given tasks: returns those that other processes have taken or have asked this process to cancel. Each
    /// task comes with the epoch in which this process writes to the task.
    ///
    /// # Errors
    /// Only those of the database.
    async fn turns_to_stop(&self, _running: &[(TaskId, u64)]) -> Result<Vec<TaskId>, StoreError> {
        Ok(Vec::new())
    }

    /// The task and the number of its last event. `None` also when it is another owner's.
    ///
    /// # Errors
    /// None but those of the database.
    async fn load(&self, owner: &Owner, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// Tells whether the owner has such a task, which costs less than loading it.
    ///
    /// # Errors
    /// None but those of the database.
    async fn exists(&self, owner: &Owner, id: &TaskId) -> Result<bool, StoreError>;

    /// At most `limit` events after number `seq`, in order; none if the task does not exist. A store in memory keeps no
    /// events of a finished task, because [`load`](Self::load) returns the whole task.
    ///
    /// # Errors
    /// Only those of the database.
    async fn events_after(&self, id: &TaskId, seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError>;

    /// Like [`events_after`](Self::events_after), with a limit on the bytes of JSON. The first event is returned at any
    /// size. A store in memory ignores the limit.
    ///
    /// # Errors
    /// Only those of the database.
    async fn events_within(
        &self,
        id: &TaskId,
        seq: u64,
        (limit, _bytes): (usize, usize),
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.events_after(id, seq, limit).await
    }

    /// Filters the given tasks: returns those whose last event has another number than the given one. Each returned task
    /// has the number of its last event, or `None` if the task was deleted. Only useful in a
    /// [shared store](Self::is_shared), because other stores have a single writer.
    ///
    /// # Errors
    /// Only those of the database.
    async fn changed(&self, _known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError> {
        Ok(Vec::new())
    }

    /// One page of the owner's tasks, of at most [`MAX_PAGE_BYTES`](crate::MAX_PAGE_BYTES). The total is counted apart
    /// from the page, so that a change in between can show.
    ///
    /// # Errors
    /// None but those of the database.
    async fn list(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// Stores a config under its id, and replaces an existing one. Its credentials are stored in clear, because they
    /// are to be sent.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::InvalidKey`] also when the config has no id, and
    /// [`StoreError::TooManyConfigs`] beyond [`MAX_PUSH_CONFIGS`].
    async fn put_config(&self, id: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), StoreError>;

    /// One config of a task; `None` if the task or the config does not exist.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    async fn config(&self, id: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError>;

    /// At most `limit` configs of a task whose ids come after `after`; an empty `after` starts at the first.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    async fn configs(&self, id: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError>;

    /// Deletes a config. Deleting a missing config is not an error.
    ///
    /// # Errors
    /// Only those of the database.
    async fn delete_config(&self, id: &TaskId, config: &str) -> Result<(), StoreError>;

    /// Claims a message for `task`, unless the message was claimed before. The task is created later, if at all. This
    /// process takes over a claim of a process whose lease has ended.
    ///
    /// # Errors
    /// [`StoreError::InvalidKey`], and [`StoreError::Unreadable`] for an answer.
    async fn remember(&self, owner: &Owner, message: &MessageKey, task: &TaskId) -> Result<Remembered, StoreError>;

    /// Stores the answer to a remembered message, if the answer is a message and not a task. The memory store skips an
    /// answer without room.
    ///
    /// # Errors
    /// Only those of the database.
    async fn answer(&self, owner: &Owner, message: &MessageKey, answer: &Message) -> Result<(), StoreError>;

    /// Releases a claim from [`Remembered::New`] or [`Remembered::Left`], because the message was refused. A claim that
    /// belongs to another process now stays. In a [shared store](Self::is_shared) the claim of a message that has
    /// reached its task or has an answer stays too.
    ///
    /// # Errors
    /// Only those of the database.
    async fn forget(&self, owner: &Owner, message: &MessageKey) -> Result<(), StoreError>;

    /// Fails every running task that the previous process of the store left, with `reason` as status message, and
    /// returns their ids. Tasks that wait for their client stay unchanged. A task that cannot be decoded is logged and
    /// skipped. To be called once, at start.
    ///
    /// In a store with one process, these are all running tasks. Messages without a task and without an answer are
    /// forgotten, so that their sender can try again. In a shared store, these are the tasks of
    /// [`recover_lost`](Self::recover_lost), and the tasks of a version without leases.
    ///
    /// # Errors
    /// Only those of the database. Tasks recovered before the error stay recovered.
    async fn recover(&self, reason: &str) -> Result<Vec<TaskId>, StoreError>;

    /// Like [`recover`](Self::recover), only for tasks of processes whose lease has ended. Each task is taken first, so
    /// that later writes of its process are refused. A task that was to be cancelled becomes CANCELED. Tasks that
    /// another process can continue are skipped. To be called repeatedly in a [shared store](Self::is_shared).
    ///
    /// # Errors
    /// Only those of the database. Tasks recovered before the error stay recovered.
    async fn recover_lost(&self, _reason: &str) -> Result<Vec<TaskId>, StoreError> {
        Ok(Vec::new())
    }

    /// Like [`recover_lost`](Self::recover_lost), and also takes tasks that this process can continue. Such a turn is
    /// started at most twice: a turn that is lost again is ended.
    ///
    /// # Errors
    /// Only those of the database. The next call returns the tasks that were taken before the error.
    async fn take_lost(&self, reason: &str) -> Result<LostTasks, StoreError> {
        Ok(LostTasks { ended: self.recover_lost(reason).await?, turns: Vec::new() })
    }

    /// Hands a task of this process over to another process, which takes the task at its next check and continues the
    /// turn. A turn that has not begun here does not count as an attempt. Returns false if this process does not own
    /// the task.
    ///
    /// # Errors
    /// Only those of the database.
    async fn hand_over(&self, _id: &TaskId, _epoch: u64, _has_begun: bool) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// True if other processes with a lease share the store at the moment, so that one of them can take a task.
    ///
    /// # Errors
    /// Only those of the database.
    async fn has_others(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// The current replica of this process; `None` if no other process shares the store.
    fn replica(&self) -> Option<Replica> {
        None
    }

    /// True if several processes may work on the tasks of this store at a time.
    fn is_shared(&self) -> bool {
        self.replica().is_some()
    }

    /// The cursors of push notifications; `None` if no other process shares the store, because a single process knows
    /// its own progress.
    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        None
    }

    /// At most `limit` tasks that wait longer than the bounds allow, or that exceed an owner's number of waiting tasks.
    /// The longest waiting tasks of an owner come first; the first `skip` tasks are skipped. The caller must end these
    /// tasks.
    ///
    /// # Errors
    /// Only those of the database.
    async fn overdue(
        &self,
        bounds: &WaitingBounds,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(Owner, TaskId)>, StoreError>;

    /// Sets the watcher for waiting tasks. A store that never drops waiting tasks never calls the watcher.
    fn watch_waiting(&self, _watcher: Arc<dyn WaitingWatcher>) {}

    /// Deletes finished tasks outside of the retention, oldest first, with their events, configs and remembered
    /// messages. Returns the number of deleted tasks. Messages that were answered with a message have the same age
    /// limit and, counted separately, the same count. The count is per tenant. Messages without a task and an answer
    /// are forgotten after a day, or after the age limit if shorter. The deletion runs in small transactions, so that
    /// other writers are not blocked for long.
    ///
    /// # Errors
    /// Only those of the database. Tasks deleted before the error stay deleted.
    async fn sweep(&self, retention: &Retention) -> Result<u64, StoreError>;

    /// Deletes the oldest finished tasks of one tenant beyond a number, as [`sweep`](Self::sweep) does. Returns the
    /// number of deleted tasks.
    ///
    /// # Errors
    /// Only those of the database. Tasks deleted before the error stay deleted.
    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError>;

    /// The number of tasks of a tenant. The count reads every task, so it is too slow for each request.
    ///
    /// # Errors
    /// Only those of the database.
    async fn count(&self, tenant: &str) -> Result<u64, StoreError>;

    /// The turns with a task that run now for a tenant, in all processes; `None` if no other process shares the store.
    ///
    /// # Errors
    /// Only those of the database.
    async fn count_running(&self, _tenant: &str) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// Reads a little, to check that the database answers.
    ///
    /// # Errors
    /// Only those of the database.
    async fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The pins of tasks; `None` if pins end with the process, as the tasks do.
    fn pins(&self) -> Option<&dyn PinStore> {
        None
    }

    /// Waits for changes in progress and closes the connections of a database. Later calls fail.
    async fn close(&self) {}
}

/// For how long a message without a task is remembered at most.
const UNCLAIMED_AGE: Duration = Duration::from_secs(24 * 60 * 60);

impl Retention {
    /// Tasks that finished before this go. Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn finished_before(&self, now: i64) -> i64 {
        before(now, self.age)
    }

    /// Messages without a task that were remembered before this go.
    pub(crate) fn remembered_before(&self, now: i64) -> i64 {
        before(now, self.age.min(UNCLAIMED_AGE))
    }
}

impl WaitingBounds {
    /// Tasks wait for ever, as many as there are.
    pub const UNBOUNDED: Self = Self { age: Duration::MAX, per_owner: usize::MAX, anonymous: usize::MAX };

    /// The most tasks of this owner that may wait.
    pub(crate) fn of(&self, owner: &Owner) -> usize {
        if owner.principal.is_empty() { self.anonymous } else { self.per_owner }
    }

    /// Tasks that have waited since before this are overdue. Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn waited_before(&self, now: i64) -> i64 {
        before(now, self.age)
    }
}

fn before(now: i64, age: Duration) -> i64 {
    // `Duration::MAX` stands for ever and has more milliseconds than the number, so the age is cut off there.
    now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}
