//! The contract of a task store.

use std::sync::Arc;
use std::time::Duration;

use annex_leases::Replica;
use annex_protocol::{Message, Owner, TaskId, TaskPushNotificationConfig};
use async_trait::async_trait;

use crate::{
    AskedRunner, ComponentStore, ConfigPage, Creator, LostTasks, MessageKey, PinStore, Place, PushCursors, Remembered,
    StoreError, StoredEvent, StoredTask, TaskEvent, TaskPage, TaskQuery, TaskSnapshot, TenantStore, TurnPlaceStore,
    UsageStore,
};

/// The most push notification configs that one task may have.
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
    /// The longest time that one may wait. [`Duration::MAX`] for ever.
    pub age: Duration,
    /// The most tasks of one owner that may wait.
    pub per_owner: usize,
    /// The most tasks that may wait of an owner without a principal, whom all anonymous clients share.
    pub anonymous: usize,
}

/// Is told by a store of tasks that wait. The server that lets them wait implements it.
pub trait WaitingWatcher: Send + Sync + 'static {
    /// A task that waited was dropped, because others wanted the room. It is as if it had been deleted.
    fn gone(&self, task: &TaskId);

    /// The owner has one waiting task too many, of which this is the oldest. It is still there.
    fn is_surplus(&self, owner: &Owner, task: &TaskId);
}

/// Keeps tasks, and what belongs to them.
///
/// A task row and the events that changed it are stored together or not at all. Events of a task are numbered from 1
/// without gaps. Methods that take no [`Owner`] rely on their caller to have loaded the task as its owner. When a call is
/// dropped before it is ready, its change may be stored or not, but never half of it.
///
/// All return [`StoreError::Database`] when the database fails; that is not repeated below.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Stores a new task with its first events: `task` is what it is with all of them. Event 1 is the task as it was
    /// made, so that the events tell all of it. Its first turn goes on from the place that is returned.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], [`StoreError::Fenced`] when the lease of the replica is over, [`StoreError::InvalidKey`],
    /// and [`StoreError::Full`] from the memory store.
    async fn create(
        &self,
        owner: &Owner,
        events: &[TaskEvent],
        task: &TaskSnapshot,
        turn: Creator<'_>,
    ) -> Result<Place, StoreError>;

    /// Appends `events` behind the place, stores `task` as what it is from then on, and returns where its writer goes on.
    /// All of that or nothing. Id, owner and context of a task never change. With a message of the client a turn begins, and
    /// where the store [is shared](Self::is_shared) another epoch.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when the place is not behind the last event, [`StoreError::Fenced`] when its epoch is over,
    /// [`StoreError::NotFound`], and [`StoreError::Full`] from the memory store, which always has room for a single event that
    /// finishes its task.
    async fn append(
        &self,
        id: &TaskId,
        at: &Place,
        events: &[TaskEvent],
        task: &TaskSnapshot,
    ) -> Result<Place, StoreError>;

    /// Takes a task that is not finished, so that this process works on it from now on, in another epoch. Returns where it
    /// goes on; `None` when it is finished or this epoch is over, and nothing is changed then.
    ///
    /// # Errors
    /// None but those of the database.
    async fn take(&self, _id: &TaskId, _epoch: u64) -> Result<Option<Place>, StoreError> {
        Ok(None)
    }

    /// Asks the process that works on the task to cancel it, and returns what is known of that process; `None` when none works
    /// on it.
    ///
    /// # Errors
    /// None but those of the database.
    async fn ask_to_cancel(&self, _id: &TaskId) -> Result<Option<AskedRunner>, StoreError> {
        Ok(None)
    }

    /// Those of the tasks, each with the epoch in which a turn of this process writes to it, that others have asked this process
    /// to cancel, or have taken.
    ///
    /// # Errors
    /// None but those of the database.
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

    /// At most `limit` events after number `seq`, in order; none when there is no such task. A store in memory keeps no events
    /// of a task that is finished, whose [`load`](Self::load) tells all of it.
    ///
    /// # Errors
    /// None but those of the database.
    async fn events_after(&self, id: &TaskId, seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError>;

    /// The same with only as many of them as take at most so many bytes of JSON, the first one in any case. A store that has
    /// them in memory gives all.
    ///
    /// # Errors
    /// None but those of the database.
    async fn events_within(
        &self,
        id: &TaskId,
        seq: u64,
        (limit, _bytes): (usize, usize),
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.events_after(id, seq, limit).await
    }

    /// Those of the tasks whose last event is another than the one named with them, each with the number of its last event,
    /// or `None` when it is gone. To be asked where the store [is shared](Self::is_shared); others know what they changed.
    ///
    /// # Errors
    /// None but those of the database.
    async fn changed(&self, _known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError> {
        Ok(Vec::new())
    }

    /// One page of the owner's tasks, of at most [`MAX_PAGE_BYTES`](crate::MAX_PAGE_BYTES). The total is counted apart
    /// from the page, so that a change in between can show.
    ///
    /// # Errors
    /// None but those of the database.
    async fn list(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// Stores a config under its id, in place of one that is there. Its credentials are stored in clear, because they
    /// are to be sent.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::InvalidKey`] also when the config has no id, and
    /// [`StoreError::TooManyConfigs`] beyond [`MAX_PUSH_CONFIGS`].
    async fn put_config(&self, id: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), StoreError>;

    /// One config of a task; `None` when there is no such task or config.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    async fn config(&self, id: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError>;

    /// At most `limit` configs of a task whose ids come after `after`; an empty `after` starts at the first.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    async fn configs(&self, id: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError>;

    /// Deletes a config; that there is none is no error.
    ///
    /// # Errors
    /// None but those of the database.
    async fn delete_config(&self, id: &TaskId, config: &str) -> Result<(), StoreError>;

    /// Claims a message for `task`, unless it was claimed before. The task is created later, if at all. A claim of a process
    /// whose lease is over goes over to this one.
    ///
    /// # Errors
    /// [`StoreError::InvalidKey`], and [`StoreError::Unreadable`] for an answer.
    async fn remember(&self, owner: &Owner, message: &MessageKey, task: &TaskId) -> Result<Remembered, StoreError>;

    /// Keeps what a remembered message was answered with, when that was a message and no task. The memory store keeps
    /// no answer that it has no room for.
    ///
    /// # Errors
    /// None but those of the database.
    async fn answer(&self, owner: &Owner, message: &MessageKey, answer: &Message) -> Result<(), StoreError>;

    /// Takes back what [`remember`](Self::remember) returned [`Remembered::New`] or [`Remembered::Left`] for, because the
    /// message was refused. A claim that is another process's by now stays, and where the store [is shared](Self::is_shared)
    /// that of a message which its task has, or which was answered.
    ///
    /// # Errors
    /// None but those of the database.
    async fn forget(&self, owner: &Owner, message: &MessageKey) -> Result<(), StoreError>;

    /// Makes every task FAILED that a process left which had the store before, with `reason` as status message, and
    /// returns them. Tasks that wait for their client stay as they are. A task that cannot be decoded is logged and left
    /// alone. To be called at start, once.
    ///
    /// Where one process has the store, that is all that was worked on, and messages whose task was never created and that
    /// have no answer are forgotten, so that their sender can try again. Where several have it, it is what
    /// [`recover_lost`](Self::recover_lost) finds, and what a version of before the leases worked on.
    ///
    /// # Errors
    /// None but those of the database. What was recovered until then stays recovered.
    async fn recover(&self, reason: &str) -> Result<Vec<TaskId>, StoreError>;

    /// The same with the tasks of processes whose lease is over, and with no others: each is taken first, so that what its
    /// process may still write is refused. One that was to be cancelled is CANCELED. To be called again and again where the
    /// store [is shared](Self::is_shared). Those that another process can go on with are left.
    ///
    /// # Errors
    /// None but those of the database. What was recovered until then stays recovered.
    async fn recover_lost(&self, _reason: &str) -> Result<Vec<TaskId>, StoreError> {
        Ok(Vec::new())
    }

    /// The same, and takes those that another process can go on with. Such a turn is begun twice at most: one that is lost
    /// again is ended.
    ///
    /// # Errors
    /// None but those of the database. What was taken until then is among the tasks of the next call.
    async fn take_lost(&self, reason: &str) -> Result<LostTasks, StoreError> {
        Ok(LostTasks { ended: self.recover_lost(reason).await?, turns: Vec::new() })
    }

    /// Leaves a task that this process works on to another one, which takes it at its next look and goes on with its turn. A
    /// turn that has not begun here does not count as begun. Returns false where the task is not this process's to leave.
    ///
    /// # Errors
    /// None but those of the database.
    async fn hand_over(&self, _id: &TaskId, _epoch: u64, _has_begun: bool) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// The replica that this process is now; `None` where it has the store for itself.
    fn replica(&self) -> Option<Replica> {
        None
    }

    /// True if several processes may work on the tasks of this store at a time.
    fn is_shared(&self) -> bool {
        self.replica().is_some()
    }

    /// The cursors of push notifications; `None` where one process has the store, which knows what it has sent.
    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        None
    }

    /// At most `limit` tasks that wait for longer, or are more of one owner, than the bounds say: of an owner those that
    /// have waited longest, and the first `skip` of them left out. They are the caller's to end.
    ///
    /// # Errors
    /// None but those of the database.
    async fn overdue(
        &self,
        bounds: &WaitingBounds,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(Owner, TaskId)>, StoreError>;

    /// Tells `watcher` from now on of tasks that wait and have to make room. Stores that never drop one tell nobody.
    fn watch_waiting(&self, _watcher: Arc<dyn WaitingWatcher>) {}

    /// Deletes finished tasks that need not stay, oldest first, with their events, configs and remembered messages, and
    /// returns how many tasks that were. Messages that were answered with a message go by the same age and, counted
    /// apart, by the same count. The count is each tenant's. Also forgets messages of which neither came within a day, or
    /// within the age if that is less. It goes in small transactions, between which others get their turn.
    ///
    /// # Errors
    /// None but those of the database. What was deleted until then stays deleted.
    async fn sweep(&self, retention: &Retention) -> Result<u64, StoreError>;

    /// Deletes the oldest finished tasks of one tenant beyond a number, as [`sweep`](Self::sweep) does, and returns how many
    /// those were.
    ///
    /// # Errors
    /// None but those of the database. What was deleted until then stays deleted.
    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError>;

    /// The tasks of a tenant. It looks at all of them, so it is not for each request.
    ///
    /// # Errors
    /// None but those of the database.
    async fn count(&self, tenant: &str) -> Result<u64, StoreError>;

    /// Reads a little, to see whether the database answers.
    ///
    /// # Errors
    /// None but those of the database.
    async fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The tenants that were added while servers ran.
    fn tenants(&self) -> &dyn TenantStore;

    /// What tenants have used.
    fn usage(&self) -> &dyn UsageStore;

    /// The components that were uploaded for tenants.
    fn components(&self) -> &dyn ComponentStore;

    /// The places of turns; `None` where one process has the store.
    fn places(&self) -> Option<&dyn TurnPlaceStore> {
        None
    }

    /// The pins of tasks; `None` where they end with the process, as the tasks do.
    fn pins(&self) -> Option<&dyn PinStore> {
        None
    }

    /// Waits for what is under way and closes what is open: a database's connections, after which later calls fail.
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
