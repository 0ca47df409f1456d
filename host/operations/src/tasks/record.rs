//! The record of one unfinished task: its current state, its log, and the means to cancel it.
//!
//! A record contains only what is stored. A turn of this process stores its entries, and then adds them to the record
//! for its readers. If no turn runs in this process, the record is updated from the store periodically while it has a
//! reader (`others.rs`).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_conversation::{
    Append, AppendError, Appended, ConversationKey, ConversationStore, Entry, Excess, Fence, Note, Position,
    StoreError, StoredTask, TaskLimits, TaskSnapshot,
};
use annex_leases::wake::Wake;
use annex_protocol::{
    A2aError, ContextId, Message, Owner, StreamResponse, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
    Timestamp,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::tasks::Tasks;
use crate::tasks::backlog::Backlog;
use crate::tasks::log::{LogReader, TaskLog};
use crate::tasks::running_turn::RunningTurn;

/// The limits on one query for entries: the number of entries, and the bytes of their JSON.
const CATCH_UP: (usize, usize) = (100, 8 << 20);

/// The current task, and a reader of all later events.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub(crate) snapshot: TaskSnapshot,
    /// The number of the last entry that the snapshot includes.
    pub(crate) seq: u64,
    /// The reader of later events. `None` if no further events can come.
    pub(crate) reader: Option<LogReader>,
}

/// A task in memory. It stays in memory while the task has a turn or a reader.
pub(crate) struct TaskRecord {
    id: TaskId,
    key: ConversationKey,
    store: Arc<dyn ConversationStore>,
    wake: Arc<dyn Wake>,
    is_shared: bool,
    limits: TaskLimits,
    /// Locked while entries of other processes are read, so that readers get each entry once and in order.
    reading: tokio::sync::Mutex<()>,
    /// The time of the last poll of the upstream about this task. Locked during the poll and during the turn that
    /// follows the task.
    asked: OnceLock<Arc<tokio::sync::Mutex<Option<Instant>>>>,
    /// Stops the polling of the upstream about this task.
    watcher: Mutex<Option<CancellationToken>>,
    state: Mutex<RecordState>,
}

struct RecordState {
    task: TaskSnapshot,
    /// The number of the last entry that `task` includes.
    number: u64,
    /// The versions of extensions for the next turn, as they are stored.
    pins: Option<Arc<str>>,
    /// The log of the task. `None` once the task is finished, or once readers cannot get further events.
    log: Option<Arc<TaskLog>>,
    /// The turn of the task in this process. `None` if no turn runs or waits here.
    turn: Option<RunningTurn>,
    /// True if a turn works on the task, in this or another process.
    is_worked_on: bool,
}

impl RecordState {
    /// A subscription to the task from now on. It has a reader if `is_wanted` is set and further events may come.
    fn subscription(&self, is_wanted: bool) -> Subscription {
        let reader = self.log.as_ref().filter(|_| is_wanted).map(TaskLog::tail);
        Subscription { snapshot: self.task.clone(), seq: self.number, reader }
    }
}

impl TaskRecord {
    /// The record of a new task with its first turn. The task must be stored before other requests see the record.
    pub(crate) fn new(key: ConversationKey, task: TaskSnapshot, turn: RunningTurn, tasks: &Tasks) -> Self {
        let log = Some(Arc::default());
        let state = RecordState { task, number: 0, pins: None, log, turn: Some(turn), is_worked_on: true };
        Self::make(key, state, tasks)
    }

    /// The record of a stored task that has no turn in this process.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    pub(crate) fn stored(stored: &StoredTask, tasks: &Tasks) -> Result<Self, StoreError> {
        let task = stored.decode()?;
        let log = (!task.state().is_terminal()).then(Arc::default);
        let (number, pins, is_worked_on) = (stored.number, stored.pins.clone(), stored.is_worked_on);
        Ok(Self::make(stored.key.clone(), RecordState { task, number, pins, log, turn: None, is_worked_on }, tasks))
    }

    fn make(key: ConversationKey, state: RecordState, tasks: &Tasks) -> Self {
        let id = state.task.id().clone();
        let (store, wake) = (Arc::clone(tasks.store()), Arc::clone(tasks.wake()));
        let (is_shared, limits) = (tasks.process().is_shared(), tasks.limits());
        let (reading, asked, watcher) = (tokio::sync::Mutex::default(), OnceLock::new(), Mutex::default());
        Self { id, key, store, wake, is_shared, limits, reading, asked, watcher, state: Mutex::new(state) }
    }

    pub(crate) fn id(&self) -> &TaskId {
        &self.id
    }

    pub(crate) fn key(&self) -> &ConversationKey {
        &self.key
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.key.context
    }

    pub(crate) fn owner(&self) -> &Owner {
        self.key.owner()
    }

    /// The current task.
    pub(crate) fn snapshot(&self) -> TaskSnapshot {
        self.lock().task.clone()
    }

    /// The current task, and the number of its last entry.
    pub(crate) fn numbered(&self) -> (TaskSnapshot, u64) {
        let state = self.lock();
        (state.task.clone(), state.number)
    }

    /// The time since which the task is SUBMITTED. `None` if the task has an entry already.
    pub(crate) fn opens(&self) -> Option<Timestamp> {
        let (task, number) = self.numbered();
        task.status_at().filter(|_| number == 0)
    }

    /// The versions of extensions for the next turn, as they are stored.
    pub(crate) fn stored_pins(&self) -> Option<Arc<str>> {
        self.lock().pins.clone()
    }

    pub(crate) fn task_state(&self) -> TaskState {
        self.lock().task.state()
    }

    /// True if the task has reached a final state.
    pub(crate) fn is_finished(&self) -> bool {
        self.task_state().is_terminal()
    }

    /// True while a turn of this process works on the task, or waits.
    pub(crate) fn is_running(&self) -> bool {
        self.lock().turn.is_some()
    }

    /// True if the task waits for its client and no turn works on it.
    pub(crate) fn waits(&self) -> bool {
        let state = self.lock();
        state.turn.is_none() && !state.is_worked_on && state.task.state().is_interrupted()
    }

    /// The time of the last poll of the upstream about this task.
    pub(super) fn asked(&self) -> &Arc<tokio::sync::Mutex<Option<Instant>>> {
        self.asked.get_or_init(Arc::default)
    }

    /// Stops the current polling of the upstream. Returns the token that stops the next polling.
    pub(super) fn next_watcher(&self) -> CancellationToken {
        let next = CancellationToken::new();
        let before = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).replace(next.clone());
        before.inspect(CancellationToken::cancel);
        next
    }

    /// True if another process works on the task, or is going to take it over.
    pub(crate) fn runs_elsewhere(&self) -> bool {
        let state = self.lock();
        state.turn.is_none() && state.is_worked_on
    }

    /// The number of the last entry in the record. `None` while entries are being read from the store.
    pub(super) fn last(&self) -> Option<u64> {
        let _reading = self.reading.try_lock().ok()?;
        Some(self.lock().number)
    }

    /// The fence of the turn of this process.
    pub(super) fn fence(&self) -> Option<Fence> {
        self.lock().turn.as_ref().map(|turn| turn.fence.clone())
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().log.as_ref().is_some_and(|log| log.has_readers())
    }

    /// True if the task was deleted, or if readers cannot get its further events.
    pub(crate) fn is_gone(&self) -> bool {
        let state = self.lock();
        state.log.is_none() && !state.task.state().is_terminal()
    }

    /// The current task, and a reader of all later events if there can be any.
    pub(crate) fn subscribe(&self) -> Subscription {
        self.lock().subscription(true)
    }

    /// Like [`subscribe`](Self::subscribe), but without a reader if no turn runs in any process.
    pub(crate) fn subscribe_to_turn(&self) -> Subscription {
        let state = self.lock();
        state.subscription(state.turn.is_some() || state.is_worked_on)
    }

    /// A reader of all events after number `after`, including stored events. `None` if no further event can come, or if entry
    /// `after` does not exist yet.
    pub(crate) fn read_behind(&self, after: u64) -> Option<LogReader> {
        let Subscription { seq, reader, .. } = self.subscribe();
        if after >= seq || after == 0 {
            return reader.filter(|_| after == seq);
        }
        let backlog = Backlog::new(&self.store, &self.id, (after, seq));
        Some(match reader {
            Some(reader) => reader.behind(backlog),
            None => LogReader::of_stored(backlog),
        })
    }

    /// Begins another turn of the task in this process.
    pub(crate) fn begin_turn(&self, turn: RunningTurn) {
        let before = {
            let mut state = self.lock();
            state.is_worked_on = true;
            state.turn.replace(turn)
        };
        if let Some(before) = before {
            before.end();
        }
    }

    /// Called when a turn of this process has entered the queue. From then on no other turn works on the task.
    pub(crate) fn is_entered(&self) {
        self.lock().is_worked_on = false;
    }

    /// Called when the client of the turn has its answer. Wakes the waiters of [`decided`](Self::decided).
    pub(crate) fn decide(&self) {
        if let Some(turn) = &mut self.lock().turn {
            turn.decide();
        }
    }

    /// Waits until the turn has decided whether it answers with its task.
    pub(crate) async fn decided(&self) {
        let decided = self.lock().turn.as_mut().and_then(RunningTurn::decided);
        if let Some(decided) = decided {
            decided.cancelled().await;
        }
    }

    /// Ends the turn with this fence in this process. `goes_on` is true if another process has the turn or will take it
    /// over.
    pub(crate) fn end_turn(&self, fence: &Fence, goes_on: bool) {
        let turn = {
            let mut state = self.lock();
            // The next turn may have begun already.
            if state.turn.as_ref().is_some_and(|turn| turn.fence != *fence) {
                return;
            }
            state.is_worked_on = goes_on && !state.task.state().is_terminal();
            state.turn.take()
        };
        if let Some(turn) = turn {
            turn.end();
        }
    }

    /// Cancels the turn of this process that has this fence, unless the turn has ended. The cancelled turn then cancels the
    /// task.
    pub(super) fn stop_turn(&self, fence: &Fence) {
        if let Some(turn) = self.lock().turn.as_ref().filter(|turn| turn.fence == *fence) {
            turn.cancel.cancel();
        }
    }

    /// Waits until no turn of this process works on the task.
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

    /// Ends the log of a task whose further events cannot be read. Readers get the stored events and then the error.
    pub(crate) fn break_off(&self, error: A2aError) {
        if let Some(log) = self.lock().log.take() {
            log.break_off(error);
        }
    }

    /// Cancels the turn of this process, which then cancels the task, and waits for the end of the log. False if this
    /// process has no turn.
    pub(crate) async fn cancel_turn(&self) -> bool {
        let log = {
            let state = self.lock();
            let Some(turn) = &state.turn else { return false };
            turn.cancel.cancel();
            state.log.as_ref().map(TaskLog::tail)
        };
        if let Some(mut log) = log {
            while log.next().await.is_some() {}
        }
        true
    }

    /// The event that cancels the task.
    pub(crate) fn canceled(&self) -> StreamResponse {
        let status = TaskStatus { state: TaskState::Canceled, message: None, timestamp: Some(Timestamp::now()) };
        StreamResponse::StatusUpdate(self.status_event(status))
    }

    pub(crate) fn status_event(&self, status: TaskStatus) -> TaskStatusUpdateEvent {
        let (task_id, context_id) = (self.id.clone(), self.context_id().clone());
        TaskStatusUpdateEvent { task_id, context_id, status, ..TaskStatusUpdateEvent::default() }
    }

    /// Stores an update of a task that no turn works on. Refuses the update if the task has changed since the caller read it
    /// with [`numbered`](Self::numbered).
    pub(super) async fn append_alone(
        &self,
        (seen, number): (TaskSnapshot, u64),
        update: StreamResponse,
    ) -> Result<Appended, AppendError> {
        let _reading = self.reading.lock().await;
        let entries = [Entry::from(update)];
        let task = seen.with(&entries);
        let append = Append { entries: &entries, task: Some(&task), ..Append::default() };
        let at = Position::of_task(self.id.clone(), number);
        match self.store.append(&self.key, &at, append).await {
            Ok(appended) => {
                self.show(&entries, appended.number, task);
                Ok(appended)
            }
            Err(stale @ AppendError::Stale { .. }) => {
                self.reload().await?;
                Err(stale)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the entries that other processes have stored, and adds them to the record.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        self.catch_up().await
    }

    /// Reads the entries that other processes have stored, and adds them to the record. Also reads the number of the
    /// last entry and whether a turn works on the task. False if the task was deleted.
    pub(crate) async fn refresh_all(&self) -> Result<bool, StoreError> {
        let _reading = self.reading.lock().await;
        self.reload().await
    }

    async fn reload(&self) -> Result<bool, StoreError> {
        self.catch_up().await?;
        let Some(stored) = self.store.task(&self.id).await? else { return Ok(false) };
        let task = if self.lock().number < stored.number { Some(stored.decode()?) } else { None };
        let mut state = self.lock();
        state.is_worked_on = stored.is_worked_on;
        state.pins = stored.pins;
        if let Some(task) = task {
            // The entries in between were none for readers of the task.
            (state.task, state.number) = (task, stored.number);
        }
        Ok(true)
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        loop {
            let (task, number) = self.numbered();
            let stored = self.store.entries_after(&self.id, number, CATCH_UP).await?;
            let Some(last) = stored.last().map(|entry| entry.number) else { return Ok(()) };
            // A turn of this process shows its entries itself.
            if self.is_running() {
                return Ok(());
            }
            let what = || format!("task {}", self.id);
            let unreadable = |source| StoreError::Unreadable { what: what(), source };
            let mut shown = Vec::with_capacity(stored.len());
            for entry in &stored {
                shown.push((entry.number, entry.decode().map_err(unreadable)?));
            }
            let entries: Vec<Entry> = shown.iter().map(|(_, entry)| entry.clone()).collect();
            let task = task.with(&entries);
            self.show_numbered(shown.iter().map(|(number, entry)| (*number, entry)), last, task);
        }
    }

    /// Adds entries that this process has stored to the record. `task` includes the entries, and `number` is the number
    /// of the last entry.
    pub(crate) fn show(&self, entries: &[Entry], number: u64, task: TaskSnapshot) {
        let first = number.saturating_sub(entries.len() as u64).saturating_add(1);
        self.show_numbered((first..).zip(entries), number, task);
        if self.is_shared {
            self.wake.tell(self.id.as_str(), number);
        }
    }

    fn show_numbered<'a>(&self, entries: impl Iterator<Item = (u64, &'a Entry)>, number: u64, task: TaskSnapshot) {
        let mut state = self.lock();
        let is_final = task.state().is_terminal();
        (state.task, state.number) = (task, number);
        // A new reader begins at the end of the log, so an event that is appended without readers would never be read.
        let log = state.log.as_ref().filter(|log| log.has_readers()).cloned();
        let mut shown = Vec::new();
        for (number, entry) in entries {
            match entry {
                Entry::Update(update) => {
                    if let StreamResponse::StatusUpdate(status) = update.as_ref() {
                        let rests = status.status.state.is_interrupted() || status.status.state.is_terminal();
                        state.is_worked_on &= !rests || state.turn.is_some();
                    }
                    if log.is_some() {
                        shown.push((number, Arc::clone(update)));
                    }
                }
                Entry::Message(_) => state.is_worked_on = true,
                Entry::Note(Note::Pins(pins)) => state.pins = Some(Arc::clone(pins)),
                Entry::Event(_) | Entry::Note(_) => {}
            }
        }
        if let Some(log) = log {
            log.append(shown);
        }
        if is_final && let Some(log) = state.log.take() {
            log.close();
        }
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
