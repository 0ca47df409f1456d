//! Tasks in memory, bounded by count and bytes.
//!
//! A task that is not finished is never dropped; of the finished ones the oldest goes first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{
    A2aError, ContextId, Message, StreamResponse, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use annex_tasks::Owner;
use lru::LruCache;
use tokio_util::sync::CancellationToken;

use crate::config::TasksConfig;
use crate::task_log::{LogReader, TaskLog};

/// One task: its present state, its log while it lives, and the way to stop it.
pub(crate) struct TaskRecord {
    owner: Owner,
    id: TaskId,
    context_id: ContextId,
    state: Mutex<RecordState>,
}

struct RecordState {
    task: Task,
    /// `None` once the task is finished.
    log: Option<Arc<TaskLog>>,
    /// Stops the running turn; `None` while no turn runs.
    turn: Option<CancellationToken>,
    /// The finished task as JSON, encoded once.
    finished: Option<Arc<str>>,
}

impl TaskRecord {
    /// A new task whose first turn is stopped by `turn`.
    pub(crate) fn new(owner: Owner, task: Task, turn: CancellationToken) -> Self {
        let (id, context_id) = (task.id.clone(), task.context_id.clone());
        let state = RecordState { task, log: Some(Arc::new(TaskLog::new())), turn: Some(turn), finished: None };
        Self { owner, id, context_id, state: Mutex::new(state) }
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.context_id
    }

    /// A further message starts another turn of the task; `false` when the task is finished.
    pub(crate) fn resume(&self, message: Message, turn: CancellationToken) -> bool {
        let mut state = self.lock();
        if state.log.is_none() {
            return false;
        }
        state.task.history.push(message);
        state.turn = Some(turn);
        true
    }

    /// The turn is over; the task may go on with another message, unless it was cancelled while the turn ended.
    pub(crate) fn end_turn(&self) {
        let turn = self.lock().turn.take();
        if turn.is_some_and(|turn| turn.is_cancelled()) {
            self.append(StreamResponse::StatusUpdate(self.status_event(canceled())));
        }
    }

    /// The task as it is now.
    pub(crate) fn snapshot(&self) -> Task {
        self.lock().task.clone()
    }

    /// The finished task as JSON; `None` while it lives.
    pub(crate) fn finished(&self) -> Option<Arc<str>> {
        self.lock().finished.clone()
    }

    pub(crate) fn task_state(&self) -> TaskState {
        self.lock().task.status.state
    }

    /// The task as it is now and a reader of everything after; no reader when the task is finished.
    pub(crate) fn subscribe(&self) -> (Task, Option<LogReader>) {
        let state = self.lock();
        (state.task.clone(), state.log.as_ref().map(TaskLog::tail))
    }

    /// Applies an event and hands it to every reader. Events after the final state are dropped.
    pub(crate) fn append(&self, event: StreamResponse) {
        let mut state = self.lock();
        let Some(log) = state.log.clone() else { return };
        match &event {
            StreamResponse::StatusUpdate(update) => state.task.apply_status(update),
            StreamResponse::ArtifactUpdate(update) => state.task.apply_artifact(update),
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        }
        log.append(event);
        if state.task.status.state.is_terminal() {
            // The data model has string keys only, so encoding cannot fail.
            state.finished = Some(serde_json::to_string(&state.task).unwrap_or_default().into());
            state.log = None;
            log.close();
        }
    }

    /// Whether the task has reached a final state.
    pub(crate) fn is_finished(&self) -> bool {
        self.lock().log.is_none()
    }

    /// Stops the running turn, which then cancels the task; without one the task is cancelled at once. Resolves when
    /// the task is finished.
    pub(crate) async fn cancel(&self) {
        let (turn, log) = {
            let state = self.lock();
            (state.turn.clone(), state.log.as_ref().map(TaskLog::tail))
        };
        match turn {
            Some(turn) => turn.cancel(),
            None => {
                let status =
                    TaskStatus { state: TaskState::Canceled, message: None, timestamp: Some(Timestamp::now()) };
                self.append(StreamResponse::StatusUpdate(self.status_event(status)));
            }
        }
        let Some(mut log) = log else { return };
        while log.next().await.is_some() {}
    }

    pub(crate) fn status_event(&self, status: TaskStatus) -> TaskStatusUpdateEvent {
        let (task_id, context_id) = (self.id.clone(), self.context_id.clone());
        TaskStatusUpdateEvent { task_id, context_id, status, ..TaskStatusUpdateEvent::default() }
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn canceled() -> TaskStatus {
    TaskStatus { state: TaskState::Canceled, message: None, timestamp: Some(Timestamp::now()) }
}

/// All tasks of this server.
pub(crate) struct TaskStore {
    bounds: TasksConfig,
    table: Mutex<Table>,
}

struct Table {
    tasks: LruCache<TaskId, Entry>,
    /// Bytes of the finished tasks' JSON.
    bytes: usize,
}

struct Entry {
    record: Arc<TaskRecord>,
    /// What the task counts for in [`Table::bytes`]; 0 while it lives.
    bytes: usize,
}

impl TaskStore {
    pub(crate) fn new(bounds: TasksConfig) -> Self {
        Self { bounds, table: Mutex::new(Table { tasks: LruCache::unbounded(), bytes: 0 }) }
    }

    /// # Errors
    /// [`A2aError::TaskNotFound`], also when the task is somebody else's.
    pub(crate) fn get(&self, owner: &Owner, id: &TaskId) -> Result<Arc<TaskRecord>, A2aError> {
        let found = self.lock().tasks.peek(id).map(|entry| Arc::clone(&entry.record));
        found.filter(|record| record.owner == *owner).ok_or_else(|| A2aError::TaskNotFound { task_id: id.clone() })
    }

    /// Adds a new task and makes room for it.
    pub(crate) fn insert(&self, record: &Arc<TaskRecord>) {
        let mut table = self.lock();
        table.tasks.put(record.id.clone(), Entry { record: Arc::clone(record), bytes: 0 });
        self.make_room(&mut table);
    }

    /// Counts a task that is finished; calling it again changes nothing.
    pub(crate) fn finish(&self, record: &TaskRecord) {
        let Some(json) = record.finished() else { return };
        let mut table = self.lock();
        let Some(entry) = table.tasks.peek_mut(&record.id) else { return };
        let counted = std::mem::replace(&mut entry.bytes, json.len());
        table.bytes = table.bytes.saturating_sub(counted).saturating_add(json.len());
        self.make_room(&mut table);
    }

    /// The owner's tasks, in one context or in all, for which `select` has something to say, in no particular order.
    pub(crate) fn of_owner<T>(
        &self,
        owner: &Owner,
        context: Option<&ContextId>,
        select: impl Fn(&Task) -> Option<T>,
    ) -> Vec<(T, Arc<TaskRecord>)> {
        let table = self.lock();
        let records = table
            .tasks
            .iter()
            .map(|(_, entry)| &entry.record)
            .filter(|record| record.owner == *owner && context.is_none_or(|context| record.context_id == *context));
        records.filter_map(|record| Some((select(&record.lock().task)?, Arc::clone(record)))).collect()
    }

    fn make_room(&self, table: &mut Table) {
        let mut looked_at = 0;
        while (table.tasks.len() > self.bounds.max_tasks || table.bytes > self.bounds.max_bytes)
            && looked_at < table.tasks.len()
        {
            let Some((id, entry)) = table.tasks.pop_lru() else { return };
            if entry.record.is_finished() {
                table.bytes = table.bytes.saturating_sub(entry.bytes);
            } else {
                // Still alive: it goes to the young end, and the search ends when all were looked at.
                table.tasks.put(id, entry);
                looked_at += 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
