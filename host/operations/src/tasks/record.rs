//! One task that is not finished: its present state, its log, and the way to stop it.
//!
//! Every change is stored before a reader sees it. What is stored is the truth: after a failure, or when another
//! process wrote, the record catches up with the stored events. Of a task that nobody works on here it does so again and
//! again while somebody reads (`others.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{
    A2aError, ContextId, Message, StreamResponse, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use annex_tasks::{
    Excess, Owner, StoreError, StoredTask, TaskEvent, TaskLimits, TaskSnapshot, TaskStore, is_worked_on,
};
use tokio_util::sync::CancellationToken;

use crate::tasks::Tasks;
use crate::tasks::log::{LogReader, TaskLog};

/// The task as it is, and a reader of what follows without gap; no reader when nothing will.
pub(crate) type Subscription = (TaskSnapshot, Option<LogReader>);

/// Events that are read at once when a record catches up.
const CATCH_UP: usize = 100;

/// A task as long as somebody works on it or reads it.
pub(crate) struct TaskRecord {
    id: TaskId,
    context_id: ContextId,
    owner: Owner,
    store: Arc<dyn TaskStore>,
    limits: TaskLimits,
    /// The number of the last event that was applied. Held while one is stored, so that they are stored and shown in
    /// one order.
    last: tokio::sync::Mutex<u64>,
    state: Mutex<RecordState>,
}

struct RecordState {
    task: TaskSnapshot,
    /// `None` once the task is finished, or cannot be stored.
    log: Option<Arc<TaskLog>>,
    /// `None` while no turn runs.
    turn: Option<RunningTurn>,
    /// True if a turn works on the task, here or in another process.
    is_worked_on: bool,
}

/// A turn as others see it.
struct RunningTurn {
    /// Stops the turn.
    cancel: CancellationToken,
    /// Fires when the turn is over. Made for the first who waits for that.
    over: Option<CancellationToken>,
}

impl RunningTurn {
    fn new(cancel: CancellationToken) -> Self {
        Self { cancel, over: None }
    }
}

impl TaskRecord {
    /// A new task, stored as its event 1, whose first turn is stopped by `turn`.
    pub(crate) fn new(owner: Owner, task: TaskSnapshot, turn: CancellationToken, tasks: &Tasks) -> Self {
        let record = Self::make(owner, task, (1, true), tasks);
        record.lock().turn = Some(RunningTurn::new(turn));
        record
    }

    /// A task as it is stored. Nobody works on it here.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    pub(crate) fn stored(owner: Owner, stored: &StoredTask, tasks: &Tasks) -> Result<Self, StoreError> {
        Ok(Self::make(owner, stored.decode()?, (stored.seq, stored.is_worked_on), tasks))
    }

    fn make(owner: Owner, task: TaskSnapshot, (last, is_worked_on): (u64, bool), tasks: &Tasks) -> Self {
        let id = task.id().clone();
        let context_id = task.context_id().clone();
        let log = (!task.state().is_terminal()).then(|| Arc::new(TaskLog::default()));
        let store = Arc::clone(tasks.store());
        let limits = *tasks.limits();
        let state = RecordState { task, log, turn: None, is_worked_on };
        Self { id, context_id, owner, store, limits, last: last.into(), state: Mutex::new(state) }
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

    /// True if another process works on the task.
    pub(crate) fn runs_elsewhere(&self) -> bool {
        let state = self.lock();
        state.turn.is_none() && state.is_worked_on
    }

    /// The number of the last event that was applied; `None` while one is being stored or read.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last.try_lock().ok().map(|last| *last)
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().log.as_ref().is_some_and(|log| log.has_readers())
    }

    /// The task as it is now and a reader of everything after; no reader when nothing more will come.
    pub(crate) fn subscribe(&self) -> Subscription {
        let state = self.lock();
        (state.task.clone(), state.log.as_ref().map(TaskLog::tail))
    }

    /// The same, but without a reader when no turn runs, be it in another process.
    pub(crate) fn subscribe_to_turn(&self) -> Subscription {
        let state = self.lock();
        let runs = state.turn.is_some() || (state.is_worked_on && self.store.is_shared());
        let log = state.log.as_ref().filter(|_| runs);
        (state.task.clone(), log.map(TaskLog::tail))
    }

    /// Another turn of the task starts, by a further message if there is one; `false` when the task takes none, or another
    /// process works on it by now.
    pub(crate) async fn resume(&self, message: Option<Message>, turn: CancellationToken) -> Result<bool, StoreError> {
        let mut last = self.last.lock().await;
        if let Some(message) = message
            && !self.join(&mut last, message).await?
        {
            return Ok(false);
        }
        let mut state = self.lock();
        let is_open = state.log.is_some();
        if is_open {
            state.turn = Some(RunningTurn::new(turn));
        }
        Ok(is_open)
    }

    /// The turn is over; the task may go on with another message, unless it was cancelled while the turn ended.
    pub(crate) async fn end_turn(&self) -> Result<(), StoreError> {
        let Some(turn) = self.lock().turn.take() else { return Ok(()) };
        let ended = if turn.cancel.is_cancelled() { self.append([self.canceled()]).await } else { Ok(()) };
        if let Some(over) = turn.over {
            over.cancel();
        }
        ended
    }

    /// Resolves when no turn runs.
    pub(crate) async fn turn_over(&self) {
        let over = self.lock().turn.as_mut().map(|turn| turn.over.get_or_insert_default().clone());
        if let Some(over) = over {
            over.cancelled().await;
        }
    }

    /// Stores events together, applies them and hands them to every reader. What comes after the final state is
    /// dropped.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] when the task may not become so large; then the events before it does are stored.
    pub(crate) async fn append(&self, events: impl IntoIterator<Item = StreamResponse>) -> Result<(), StoreError> {
        let events: Vec<TaskEvent> = events.into_iter().map(TaskEvent::from).collect();
        self.append_all(&events).await
    }

    /// The same with events that are ready to be stored.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(crate) async fn append_all(&self, events: &[TaskEvent]) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        match self.store(&mut last, events).await {
            Err(StoreError::TooLarge { .. }) if events.len() > 1 => {
                // One by one, so that those that still fit are stored.
                for event in events.chunks(1) {
                    self.store(&mut last, event).await?;
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Checks that the task has room for a message of its client, and for an answer.
    ///
    /// # Errors
    /// What there would be too much of.
    pub(crate) fn check_message(&self, message: &Message) -> Result<(), Excess> {
        self.snapshot().check_message(&self.limits, message)
    }

    /// Shows what was stored together with the task itself.
    pub(crate) async fn show_first(&self, events: &[TaskEvent], task: TaskSnapshot) {
        let mut last = self.last.lock().await;
        *last += events.len() as u64;
        self.show(events, task, false);
    }

    /// Learns what others stored since.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        self.catch_up(&mut last).await
    }

    /// Stores a message of the client, unless another process works on the task since its client has answered there.
    async fn join(&self, last: &mut u64, message: Message) -> Result<bool, StoreError> {
        let events = [TaskEvent::from(message)];
        let stored = match self.try_store(*last, &events).await {
            Err(StoreError::Stale { .. }) => {
                self.catch_up(last).await?;
                if self.runs_elsewhere() {
                    return Ok(false);
                }
                self.try_store(*last, &events).await?
            }
            other => other?,
        };
        self.take(last, &events, stored);
        Ok(true)
    }

    async fn store(&self, last: &mut u64, events: &[TaskEvent]) -> Result<(), StoreError> {
        let stored = self.try_store(*last, events).await;
        // An append that seemed to fail was stored, or another process wrote.
        let stored = match stored {
            Err(StoreError::Stale { .. }) => {
                self.catch_up(last).await?;
                self.try_store(*last, events).await?
            }
            other => other?,
        };
        self.take(last, events, stored);
        Ok(())
    }

    fn take(&self, last: &mut u64, events: &[TaskEvent], stored: Option<(u64, TaskSnapshot)>) {
        if let Some((number, task)) = stored {
            *last = number;
            self.show(events, task, false);
        }
    }

    /// The last event's number and the task with all of them; `None` when the task takes no more events.
    async fn try_store(&self, last: u64, events: &[TaskEvent]) -> Result<Option<(u64, TaskSnapshot)>, StoreError> {
        let task = {
            let state = self.lock();
            if state.log.is_none() {
                return Ok(None);
            }
            state.task.clone()
        };
        let before = task;
        let task = before.with(events);
        task.check(&before, &self.limits).map_err(|excess| StoreError::TooLarge { excess })?;
        let number = self.store.append(&self.id, last, events, &task).await?;
        Ok(Some((number, task)))
    }

    async fn catch_up(&self, last: &mut u64) -> Result<(), StoreError> {
        loop {
            let events = self.store.events_after(&self.id, *last, CATCH_UP).await?;
            if events.is_empty() {
                return Ok(());
            }
            let unreadable = |source| StoreError::Unreadable { task: self.id.clone(), source };
            let decoded = events.iter().map(|stored| stored.decode().map_err(unreadable));
            let decoded: Vec<TaskEvent> = decoded.collect::<Result<_, _>>()?;
            *last += decoded.len() as u64;
            // A process whose turn runs sends all that becomes of its task, also what another one stored in between.
            self.show(&decoded, self.snapshot().with(&decoded), !self.is_running());
        }
    }

    /// Lets everybody see events that are stored, and the task as it is with them. `is_others` says that another process
    /// stored them and works on the task.
    fn show(&self, events: &[TaskEvent], task: TaskSnapshot, is_others: bool) {
        let mut state = self.lock();
        let is_final = task.state().is_terminal();
        state.is_worked_on = is_worked_on(state.is_worked_on, events, task.state());
        state.task = task;
        let Some(log) = &state.log else { return };
        // A reader begins behind what is logged, so that nobody will ever read what is logged now for nobody.
        if log.has_readers() {
            let shown = events.iter().filter_map(|event| match event {
                TaskEvent::Stream(event) => Some(Arc::clone(event)),
                TaskEvent::Message(_) => None,
            });
            log.append(shown, is_others);
        }
        if is_final && let Some(log) = state.log.take() {
            log.close();
        }
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

/// The refusal of a message for a task that another process works on.
pub(crate) fn runs_elsewhere(task_id: &TaskId) -> A2aError {
    let reason = format!(
        "task {task_id} is being worked on in another process of this server; send the message again when the task waits"
    );
    A2aError::UnsupportedOperation { reason }
}
