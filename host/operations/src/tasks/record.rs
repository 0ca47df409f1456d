//! The record of one unfinished task: its current state, its log, and the means to cancel it.
//!
//! Every change is stored before a reader gets it (`record/writing.rs`). If no turn runs in this process, the record is
//! updated from the store periodically while it has a reader (`others.rs`).

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

/// The current task, and a reader of all later events.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub(crate) snapshot: TaskSnapshot,
    /// The number of the last event that the snapshot includes.
    pub(crate) seq: u64,
    /// `None` if there will be no further events.
    pub(crate) reader: Option<LogReader>,
}

/// A further turn of a task.
pub(crate) struct NextTurn {
    /// Cancels the turn.
    pub(crate) cancel: CancellationToken,
    /// The replica id under which the turn began. `None` if only one process can use the store.
    pub(crate) runner: Option<Replica>,
    /// The data with which another process can continue the turn, if it begins with a message. `None` if the turn would
    /// fail instead.
    pub(crate) stored: Option<Arc<str>>,
}

/// A task while it has a turn or a reader.
pub(crate) struct TaskRecord {
    id: TaskId,
    context_id: ContextId,
    owner: Owner,
    store: Arc<dyn TaskStore>,
    wake: Arc<dyn Wake>,
    limits: TaskLimits,
    /// The place after the last applied event. Locked while an event is stored, so that events are stored and shown in
    /// the same order.
    last: tokio::sync::Mutex<Place>,
    /// The time of the last poll of the upstream about this task. Locked during the poll and during the turn that
    /// follows the task.
    asked: OnceLock<Arc<tokio::sync::Mutex<Option<Instant>>>>,
    /// Stops the polling of the upstream about this task.
    watcher: Mutex<Option<CancellationToken>>,
    state: Mutex<RecordState>,
}

struct RecordState {
    task: TaskSnapshot,
    /// The number of the last event that `task` includes.
    seq: u64,
    /// `None` once the task is finished or cannot be stored.
    log: Option<Arc<TaskLog>>,
    /// `None` while no turn runs.
    turn: Option<RunningTurn>,
    /// True if a turn works on the task, in this or another process.
    is_worked_on: bool,
    /// True if this process has stored the last event.
    last_is_ours: bool,
}

impl RecordState {
    /// A subscription. It has a reader if `is_wanted` is set and further events may come.
    fn subscription(&self, is_wanted: bool) -> Subscription {
        let reader = self.log.as_ref().filter(|_| is_wanted).map(TaskLog::tail);
        Subscription { snapshot: self.task.clone(), seq: self.seq, reader }
    }
}

impl TaskRecord {
    /// A new task, which is stored as event 1. `turn` is its first turn.
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

    /// A stored task without a turn in this process.
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

    /// The current task.
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

    /// True if the task waits for its client and no turn works on it.
    pub(crate) fn waits(&self) -> bool {
        let state = self.lock();
        state.turn.is_none() && !state.is_worked_on && state.task.state().is_interrupted()
    }

    /// When the upstream was last polled about this task.
    pub(super) fn asked(&self) -> &Arc<tokio::sync::Mutex<Option<Instant>>> {
        self.asked.get_or_init(Arc::default)
    }

    /// Stops the current polling of the upstream. Returns the token that stops the next one.
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

    /// True if this process has stored the task's last event.
    pub(crate) fn last_is_ours(&self) -> bool {
        self.lock().last_is_ours
    }

    /// The number of the last applied event. `None` while events are being stored or read.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last.try_lock().ok().map(|last| last.seq)
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().log.as_ref().is_some_and(|log| log.has_readers())
    }

    /// The current task, and a reader of all later events if there can be any.
    pub(crate) fn subscribe(&self) -> Subscription {
        self.lock().subscription(true)
    }

    /// Like [`subscribe`](Self::subscribe), but without a reader if no turn runs in any process.
    pub(crate) fn subscribe_to_turn(&self) -> Subscription {
        let state = self.lock();
        let runs = state.turn.is_some() || (state.is_worked_on && self.store.is_shared());
        state.subscription(runs)
    }

    /// A reader of all events after number `after`, including stored ones. `None` if no further event can come, or if
    /// event `after` does not exist yet.
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

    /// Begins another turn of the task, with the client's message if there is one. False if the task is finished or
    /// another process works on it.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if the lease of the turn's replica has ended.
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

    /// Ends the turn. If the turn was cancelled just before, the task is cancelled now. Otherwise the task may continue
    /// with another message.
    pub(crate) async fn end_turn(&self) -> Result<(), StoreError> {
        let Some(turn) = self.lock().turn.take() else { return Ok(()) };
        let ended = if turn.cancel.is_cancelled() {
            let mut last = self.last.lock().await;
            match self.store(&mut last, &[self.canceled().into()]).await {
                // The client has continued the task in another process, so the cancellation is too late.
                Err(StoreError::Fenced { .. }) => Ok(()),
                other => other,
            }
        } else {
            Ok(())
        };
        turn.end();
        ended
    }

    /// Ends the turn in this process. Another process may own the task by now.
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

    /// The replica of the running turn. `None` without a turn, or if only one process can use the store.
    pub(crate) fn runner(&self) -> Option<Replica> {
        self.lock().turn.as_ref().and_then(|turn| turn.runner.clone())
    }

    /// The epoch of this process's last write to the task. `None` while events are being stored or read.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let of_turn = self.lock().turn.as_ref().map(|turn| turn.epoch);
        of_turn.or_else(|| self.last.try_lock().ok().map(|last| last.epoch))
    }

    /// True if a turn runs here although another process may own the task.
    pub(crate) fn is_lost(&self) -> bool {
        self.lock().turn.as_ref().is_some_and(RunningTurn::is_lost)
    }

    /// Cancels the running turn of this process, if there is one. The turn then cancels the task.
    pub(crate) fn stop_turn(&self) {
        if let Some(turn) = &self.lock().turn {
            turn.cancel.cancel();
        }
    }

    /// Continues in this epoch, in which the task was left to this process.
    pub(crate) async fn adopt(&self, epoch: u64) {
        self.last.lock().await.epoch = epoch;
    }

    /// Takes over the task from the process that worked on it in `epoch`. False if another process was faster.
    pub(crate) async fn take(&self, epoch: u64) -> Result<bool, StoreError> {
        let mut last = self.last.lock().await;
        let before = mem::replace(&mut last.epoch, epoch);
        let taken = self.take_at(&mut last).await;
        // A turn that runs here continues in its own epoch.
        if last.epoch == epoch {
            last.epoch = before;
        }
        taken
    }

    /// Waits until no turn runs.
    pub(crate) async fn turn_over(&self) {
        let over = self.lock().turn.as_mut().map(RunningTurn::over);
        if let Some(over) = over {
            over.cancelled().await;
        }
    }

    /// Checks that the task has room for a message of its client and for an answer.
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub(crate) fn check_message(&self, message: &Message) -> Result<(), Excess> {
        self.snapshot().check_message(&self.limits, message)
    }

    /// Ends the log of a task that cannot be stored any more. Readers get the stored events and then the error.
    pub(crate) fn break_off(&self, error: A2aError) {
        if let Some(log) = self.lock().log.take() {
            log.break_off(error);
        }
    }

    /// Cancels the running turn, which then cancels the task. Without a turn, stores `canceled` as the task's end.
    /// Waits for the end of the log.
    pub(crate) async fn cancel(&self, canceled: StreamResponse) -> Result<(), StoreError> {
        let (stopping, log) = {
            let state = self.lock();
            // Checked under the lock: a turn that ends checks for its cancellation only after it has left the record.
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

    /// The event that cancels the task.
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

/// The error for a message to a task that accepts no further messages.
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

/// The error for a message to a task with a running turn.
pub(crate) fn worked_on(record: &TaskRecord) -> A2aError {
    let task_id = record.id();
    let state = record.task_state().name();
    let reason = format!(
        "task {task_id} is in state {state} and takes no message before it waits for one; send the message then, or without \
         taskId to go on in the context with a new task"
    );
    A2aError::UnsupportedOperation { reason }
}

/// The error for a message to a task that another process works on.
pub(crate) fn runs_elsewhere(task_id: &TaskId) -> A2aError {
    let reason = format!(
        "task {task_id} is being worked on in another process of this server; send the message again when the task waits"
    );
    A2aError::UnsupportedOperation { reason }
}
