//! One task that is not finished: its present state, its log, and the way to stop it.
//!
//! Every change is stored before a reader sees it (`record/writing.rs`). Of a task that nobody works on here the record catches
//! up with the stored events again and again while somebody reads (`others.rs`).

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_leases::Replica;
use annex_leases::wake::Wake;
use annex_protocol::{
    A2aError, ContextId, Message, Owner, StreamResponse, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
    Timestamp,
};
use annex_tasks::{Excess, Place, StoreError, StoredTask, TaskLimits, TaskSnapshot, TaskStore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::tasks::Tasks;
use crate::tasks::backlog::Backlog;
use crate::tasks::log::{LogReader, TaskLog};
use crate::tasks::running_turn::RunningTurn;

mod writing;

/// The task as it is, and a reader of what follows without gap.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub(crate) snapshot: TaskSnapshot,
    /// The number of the last event in the snapshot.
    pub(crate) seq: u64,
    /// `None` when nothing will follow.
    pub(crate) reader: Option<LogReader>,
}

/// A further turn of a task.
pub(crate) struct NextTurn {
    /// Stops it.
    pub(crate) cancel: CancellationToken,
    /// The replica that it has begun as one of; `None` where one process has the store.
    pub(crate) runner: Option<Replica>,
    /// The text with which another process goes on with it, if it begins with a message; `None` where it would fail.
    pub(crate) stored: Option<Arc<str>>,
}

/// A task as long as somebody works on it or reads it.
pub(crate) struct TaskRecord {
    id: TaskId,
    context_id: ContextId,
    owner: Owner,
    store: Arc<dyn TaskStore>,
    wake: Arc<dyn Wake>,
    limits: TaskLimits,
    /// The place behind the last event that was applied. Held while one is stored, so that they are stored and shown in
    /// one order.
    last: tokio::sync::Mutex<Place>,
    /// When the upstream was last polled about this task. Locked during the poll and during the turn that follows the task.
    asked: OnceLock<Arc<tokio::sync::Mutex<Option<Instant>>>>,
    /// Stops the polling of the upstream about this task.
    watcher: Mutex<Option<CancellationToken>>,
    state: Mutex<RecordState>,
}

struct RecordState {
    task: TaskSnapshot,
    /// The number of the last event in it.
    seq: u64,
    /// `None` once the task is finished, or cannot be stored.
    log: Option<Arc<TaskLog>>,
    /// `None` while no turn runs.
    turn: Option<RunningTurn>,
    /// True if a turn works on the task, here or in another process.
    is_worked_on: bool,
    /// True if this process has stored the last event.
    last_is_ours: bool,
}

impl RecordState {
    /// With a reader if one `is_wanted` and something may follow.
    fn subscription(&self, is_wanted: bool) -> Subscription {
        let reader = self.log.as_ref().filter(|_| is_wanted).map(TaskLog::tail);
        Subscription { snapshot: self.task.clone(), seq: self.seq, reader }
    }
}

impl TaskRecord {
    /// A new task, stored as its event 1, whose first turn is stopped by `turn`.
    pub(crate) fn new(
        owner: Owner,
        task: TaskSnapshot,
        (place, turn): (Place, CancellationToken),
        tasks: &Tasks,
    ) -> Self {
        let turn = RunningTurn::new(turn, &place);
        let record = Self::make(owner, task, (Place { seq: 1, ..place }, true), tasks);
        let mut state = record.lock();
        state.turn = Some(turn);
        state.last_is_ours = true;
        drop(state);
        record
    }

    /// A task as it is stored. Nobody works on it here.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    pub(crate) fn stored(owner: Owner, stored: &StoredTask, tasks: &Tasks) -> Result<Self, StoreError> {
        Ok(Self::make(owner, stored.decode()?, (stored.place(), stored.is_worked_on), tasks))
    }

    fn make(owner: Owner, task: TaskSnapshot, (last, is_worked_on): (Place, bool), tasks: &Tasks) -> Self {
        let id = task.id().clone();
        let context_id = task.context_id().clone();
        let log = (!task.state().is_terminal()).then(|| Arc::new(TaskLog::default()));
        let store = Arc::clone(tasks.store());
        let wake = Arc::clone(tasks.wake());
        let limits = tasks.limits();
        let state = RecordState { task, seq: last.seq, log, turn: None, is_worked_on, last_is_ours: false };
        let (last, state) = (last.into(), Mutex::new(state));
        let (asked, watcher) = (OnceLock::new(), Mutex::default());
        Self { id, context_id, owner, store, wake, limits, last, asked, watcher, state }
    }

    pub(crate) fn id(&self) -> &TaskId {
        &self.id
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.context_id
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The task as it is now.
    pub(crate) fn snapshot(&self) -> TaskSnapshot {
        self.lock().task.clone()
    }

    pub(crate) fn task_state(&self) -> TaskState {
        self.lock().task.state()
    }

    /// True if the task has reached a final state.
    pub(crate) fn is_finished(&self) -> bool {
        self.task_state().is_terminal()
    }

    /// True while a turn of this process works on the task.
    pub(crate) fn is_running(&self) -> bool {
        self.lock().turn.is_some()
    }

    /// True if the task waits for its client, and nobody works on it.
    pub(crate) fn waits(&self) -> bool {
        let state = self.lock();
        state.turn.is_none() && !state.is_worked_on && state.task.state().is_interrupted()
    }

    /// When the upstream was last polled about this task.
    pub(super) fn asked(&self) -> &Arc<tokio::sync::Mutex<Option<Instant>>> {
        self.asked.get_or_init(Arc::default)
    }

    /// Stops the polling of the upstream that runs now. Returns what will stop the next one.
    pub(super) fn next_watcher(&self) -> CancellationToken {
        let next = CancellationToken::new();
        let before = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).replace(next.clone());
        before.inspect(CancellationToken::cancel);
        next
    }

    /// True if another process works on the task.
    pub(crate) fn runs_elsewhere(&self) -> bool {
        let state = self.lock();
        state.turn.is_none() && state.is_worked_on
    }

    /// True if this process has brought the task where it is now.
    pub(crate) fn last_is_ours(&self) -> bool {
        self.lock().last_is_ours
    }

    /// The number of the last event that was applied; `None` while one is being stored or read.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last.try_lock().ok().map(|last| last.seq)
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().log.as_ref().is_some_and(|log| log.has_readers())
    }

    /// The task as it is now and a reader of everything after; no reader when nothing more will come.
    pub(crate) fn subscribe(&self) -> Subscription {
        self.lock().subscription(true)
    }

    /// The same, but without a reader when no turn runs, be it in another process.
    pub(crate) fn subscribe_to_turn(&self) -> Subscription {
        let state = self.lock();
        let runs = state.turn.is_some() || (state.is_worked_on && self.store.is_shared());
        state.subscription(runs)
    }

    /// A reader of all events behind number `after`, those that are stored first. `None` when there are none and nothing
    /// will follow, or when there is no such event yet.
    pub(crate) fn read_behind(&self, after: u64) -> Option<LogReader> {
        let Subscription { seq, reader, .. } = self.subscribe();
        if after >= seq {
            return reader.filter(|_| after == seq);
        }
        let backlog = Backlog::new(&self.store, (&self.owner, &self.id), (after, seq));
        Some(match reader {
            Some(reader) => reader.behind(backlog),
            None => LogReader::of_stored(backlog),
        })
    }

    /// Another turn of the task starts, by a further message if there is one; `false` when the task takes none, or another
    /// process works on it by now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the lease of the turn's replica is over.
    pub(crate) async fn resume(&self, message: Option<Message>, turn: NextTurn) -> Result<bool, StoreError> {
        let mut last = self.last.lock().await;
        if turn.runner.as_ref().is_some_and(Replica::is_over) {
            return Err(StoreError::Fenced { task: self.id.clone() });
        }
        let cancel = turn.cancel.clone();
        let is_begun = match message {
            Some(message) => self.join(&mut last, message, turn).await?,
            None => !self.store.is_shared() || self.take_at(&mut last).await?,
        };
        if !is_begun {
            return Ok(false);
        }
        let mut state = self.lock();
        let is_open = state.log.is_some();
        if is_open {
            state.turn = Some(RunningTurn::new(cancel, &last));
        }
        Ok(is_open)
    }

    /// The turn is over; the task may go on with another message, unless it was cancelled while the turn ended.
    pub(crate) async fn end_turn(&self) -> Result<(), StoreError> {
        let Some(turn) = self.lock().turn.take() else { return Ok(()) };
        let ended = if turn.cancel.is_cancelled() {
            let mut last = self.last.lock().await;
            match self.store(&mut last, &[self.canceled().into()]).await {
                // Its client has gone on with it in another process, and the cancellation came too late.
                Err(StoreError::Fenced { .. }) => Ok(()),
                other => other,
            }
        } else {
            Ok(())
        };
        turn.end();
        ended
    }

    /// The turn is over, and another process may have the task.
    pub(crate) fn leave_turn(&self) {
        let turn = {
            let mut state = self.lock();
            state.is_worked_on = !state.task.state().is_terminal();
            state.turn.take()
        };
        if let Some(turn) = turn {
            turn.end();
        }
    }

    /// The replica that the running turn belongs to; `None` without one, and where one process has the store.
    pub(crate) fn runner(&self) -> Option<Replica> {
        self.lock().turn.as_ref().and_then(|turn| turn.runner.clone())
    }

    /// The epoch in which this process wrote to the task last; `None` while something is being stored or read.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let of_turn = self.lock().turn.as_ref().map(|turn| turn.epoch);
        of_turn.or_else(|| self.last.try_lock().ok().map(|last| last.epoch))
    }

    /// True if a turn runs here and the task may be another process's by now.
    pub(crate) fn is_lost(&self) -> bool {
        self.lock().turn.as_ref().is_some_and(RunningTurn::is_lost)
    }

    /// Stops the turn that runs here, if one does. It then cancels the task.
    pub(crate) fn stop_turn(&self) {
        if let Some(turn) = &self.lock().turn {
            turn.cancel.cancel();
        }
    }

    /// The task was left to this process, in this epoch.
    pub(crate) async fn adopt(&self, epoch: u64) {
        self.last.lock().await.epoch = epoch;
    }

    /// Takes the task from the process that worked on it in this epoch. Returns false when somebody else was faster.
    pub(crate) async fn take(&self, epoch: u64) -> Result<bool, StoreError> {
        let mut last = self.last.lock().await;
        let before = mem::replace(&mut last.epoch, epoch);
        let taken = self.take_at(&mut last).await;
        // A turn that runs here goes on in its own.
        if last.epoch == epoch {
            last.epoch = before;
        }
        taken
    }

    /// Resolves when no turn runs.
    pub(crate) async fn turn_over(&self) {
        let over = self.lock().turn.as_mut().map(RunningTurn::over);
        if let Some(over) = over {
            over.cancelled().await;
        }
    }

    /// Checks that the task has room for a message of its client, and for an answer.
    ///
    /// # Errors
    /// What there would be too much of.
    pub(crate) fn check_message(&self, message: &Message) -> Result<(), Excess> {
        self.snapshot().check_message(&self.limits, message)
    }

    /// Nothing more can be stored: whoever reads has read all there is, and hears why.
    pub(crate) fn break_off(&self, error: A2aError) {
        if let Some(log) = self.lock().log.take() {
            log.break_off(error);
        }
    }

    /// Stops the running turn, which then cancels the task; without one it is cancelled at once by `canceled`. Resolves
    /// when nothing more will come.
    pub(crate) async fn cancel(&self, canceled: StreamResponse) -> Result<(), StoreError> {
        let (stopping, log) = {
            let state = self.lock();
            // Under the lock: a turn that ends looks whether it was cancelled after it has left the record.
            let stopping = state.turn.as_ref().map(|turn| turn.cancel.cancel());
            (stopping, state.log.as_ref().map(TaskLog::tail))
        };
        if stopping.is_none() {
            return self.append([canceled]).await;
        }
        let Some(mut log) = log else { return Ok(()) };
        while log.next().await.is_some() {}
        Ok(())
    }

    /// The event that cancels it.
    pub(crate) fn canceled(&self) -> StreamResponse {
        let status = TaskStatus { state: TaskState::Canceled, message: None, timestamp: Some(Timestamp::now()) };
        StreamResponse::StatusUpdate(self.status_event(status))
    }

    pub(crate) fn status_event(&self, status: TaskStatus) -> TaskStatusUpdateEvent {
        let task_id = self.id.clone();
        let context_id = self.context_id.clone();
        TaskStatusUpdateEvent { task_id, context_id, status, ..TaskStatusUpdateEvent::default() }
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refusal of a message for a task that takes none.
pub(crate) fn finished(record: &TaskRecord) -> A2aError {
    let task_id = record.id();
    let state = record.task_state().name();
    let reason = if record.is_finished() {
        format!("task {task_id} is in terminal state {state}; send the message without taskId to go on in the context")
    } else {
        format!("task {task_id} cannot go on now; try again")
    };
    A2aError::UnsupportedOperation { reason }
}

/// The refusal of a message for a task whose turn runs.
pub(crate) fn worked_on(record: &TaskRecord) -> A2aError {
    let task_id = record.id();
    let state = record.task_state().name();
    let reason = format!(
        "task {task_id} is in state {state} and takes no message before it waits for one; send the message then, or without \
         taskId to go on in the context with a new task"
    );
    A2aError::UnsupportedOperation { reason }
}

/// The refusal of a message for a task that another process works on.
pub(crate) fn runs_elsewhere(task_id: &TaskId) -> A2aError {
    let reason = format!(
        "task {task_id} is being worked on in another process of this server; send the message again when the task waits"
    );
    A2aError::UnsupportedOperation { reason }
}
