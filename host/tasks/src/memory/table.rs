//! The table of a memory store: its entries, and the entries to drop when it is full.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use annex_protocol::{ContextId, Owner, TaskId, TaskState, Timestamp};

use super::MemoryBounds;
use super::messages::SeenMessages;
use super::shares::{Measure, Running, Shares, Wanted};
use crate::event::EventContent;
use crate::record::{Rest, Standing, TaskContent, is_worked_on};
use crate::{
    MAX_PUSH_CONFIGS, MessageKey, StoreError, StoredEvent, StoredTask, TaskCursor, TaskEvent, TaskQuery, TaskSnapshot,
    WaitingBounds, size,
};

pub(super) struct Entry {
    pub(super) owner: Owner,
    id: TaskId,
    context_id: ContextId,
    content: TaskContent,
    pub(super) standing: Standing,
    /// True if it waits for its client, who has not answered yet.
    waits: bool,
    /// The number of the last event.
    seq: u64,
    /// All events of a task that is not finished; the number of one is its index and one.
    events: Vec<TaskEvent>,
    /// Configs as JSON, by their ids.
    pub(super) configs: BTreeMap<String, String>,
    /// Bytes of task, events and configs.
    bytes: usize,
}

impl Entry {
    pub(super) fn new(owner: Owner, events: &[TaskEvent], task: &TaskSnapshot) -> Result<Self, StoreError> {
        let id = task.id().clone();
        let context_id = task.context_id().clone();
        let content = content(task)?;
        let standing = task.standing();
        let waits = standing.state.is_interrupted();
        let kept = Vec::new();
        let configs = BTreeMap::new();
        let mut entry =
            Self { owner, id, context_id, content, standing, waits, seq: 0, events: kept, configs, bytes: 0 };
        entry.bytes = entry.bytes_with(events, &entry.content);
        entry.log(events);
        Ok(entry)
    }

    /// Size of the entry after further events, in bytes. `content` is the task after these events.
    fn bytes_with(&self, events: &[TaskEvent], content: &TaskContent) -> usize {
        match content {
            TaskContent::Json(json) => json.len() + self.configs.values().map(String::len).sum::<usize>(),
            TaskContent::Since(_) | TaskContent::Value(_) => self.bytes + size::of_events(events),
        }
    }

    fn log(&mut self, events: &[TaskEvent]) {
        self.seq += events.len() as u64;
        match self.content {
            // Assigned and not cleared: `clear` would keep the memory of a log that nobody reads any more.
            TaskContent::Json(_) => self.events = Vec::new(),
            TaskContent::Since(_) | TaskContent::Value(_) => self.events.extend_from_slice(events),
        }
    }

    pub(super) fn stored(&self) -> StoredTask {
        let is_worked_on = self.rest() == Rest::Runs;
        let is_finished = self.standing.finished_at.is_some();
        let (id, content) = (self.id.clone(), self.content.clone());
        StoredTask { id, seq: self.seq, epoch: 0, is_worked_on, is_finished, content }
    }

    pub(super) fn events_after(&self, seen: usize) -> impl Iterator<Item = StoredEvent> {
        let unseen = self.events.iter().zip(1..).skip(seen);
        unseen.map(|(event, seq)| StoredEvent { seq, content: EventContent::Value(event.clone()) })
    }

    /// The state that decides if the task may be dropped to make room.
    pub(super) fn rest(&self) -> Rest {
        match self.standing.finished_at {
            Some(since) => Rest::Finished(since),
            None if self.waits => Rest::Waits(self.standing.status_at),
            None => Rest::Runs,
        }
    }

    /// Bytes of task, events and configs.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the task as it is now.
    pub(super) fn task_bytes(&self) -> usize {
        match &self.content {
            TaskContent::Json(json) => json.len(),
            // Only databases hold tasks in this form.
            TaskContent::Since(_) => 0,
            TaskContent::Value(task) => task.size().bytes,
        }
    }

    /// The growth of the owner's running tasks if this task runs with this many bytes.
    fn added_running(&self, bytes: usize) -> Running {
        match self.rest() {
            Rest::Runs => Running { tasks: 0, bytes: bytes.saturating_sub(self.bytes) },
            Rest::Waits(_) | Rest::Finished(_) => Running { tasks: 1, bytes },
        }
    }

    /// True if the task waits for its client after these events, which bring the task into `state`.
    fn waits_after(&self, events: &[TaskEvent], state: TaskState) -> bool {
        state.is_interrupted() && !is_worked_on(!self.waits, events, state)
    }

    fn matches(&self, owner: &Owner, query: &TaskQuery) -> bool {
        self.owner == *owner
            && query.context.as_ref().is_none_or(|context| self.context_id == *context)
            && query.state.is_none_or(|state| self.standing.state == state)
            && query.status_after.map(Timestamp::as_millis).is_none_or(|after| self.standing.status_at >= after)
    }
}

/// Finished tasks are kept as JSON, which takes a fraction of the memory, and without events, because a finished task
/// has no subscribers.
fn content(task: &TaskSnapshot) -> Result<TaskContent, StoreError> {
    if task.state().is_terminal() {
        Ok(TaskContent::Json(task.stored_json()?))
    } else {
        Ok(TaskContent::Value(task.clone()))
    }
}

/// A change of a waiting task, for the server.
#[derive(Debug)]
pub(super) enum Notice {
    /// A waiting task was dropped to make room.
    Gone(TaskId),
    /// The owner has too many waiting tasks, and this is the oldest.
    Surplus(Owner, TaskId),
}

pub(super) struct Table {
    bounds: MemoryBounds,
    pub(super) tasks: HashMap<TaskId, Entry>,
    shares: Shares,
    pub(super) messages: SeenMessages,
    /// Notices for the next `take_notices`.
    notices: Vec<Notice>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What clients sent is not for logs.
        let tasks = self.tasks.len();
        let bytes = self.shares.bytes();
        formatter.debug_struct("Table").field("tasks", &tasks).field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl Table {
    pub(super) fn new(bounds: MemoryBounds) -> Self {
        let messages = SeenMessages::new(bounds.max_tasks.saturating_mul(4), bounds.max_bytes / 4);
        Self { bounds, tasks: HashMap::new(), shares: Shares::default(), messages, notices: Vec::new() }
    }

    /// The number of tasks of a tenant.
    pub(super) fn count(&self, tenant: &str) -> u64 {
        self.shares.tasks_of(tenant) as u64
    }

    /// Takes the notices since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    pub(super) fn insert(&mut self, entry: Entry) -> Result<(), StoreError> {
        let id = entry.id.clone();
        if self.tasks.contains_key(&id) {
            return Err(StoreError::AlreadyExists { task: id });
        }
        let runs = entry.rest() == Rest::Runs;
        let running = if runs { Running { tasks: 1, bytes: entry.bytes } } else { Running::default() };
        // Before room is made: nothing of others goes for a task that is refused.
        self.check_running(&entry.owner, running)?;
        self.make_room(Wanted { owner: &entry.owner, tasks: 1, bytes: entry.bytes, kept: None })?;
        self.shares.add(&id, &entry);
        if entry.waits {
            self.note_surplus(&entry.owner);
        }
        self.tasks.insert(id, entry);
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        id: &TaskId,
        expected: u64,
        events: &[TaskEvent],
        task: &TaskSnapshot,
    ) -> Result<u64, StoreError> {
        let entry = self.tasks.get(id).ok_or_else(|| StoreError::NotFound { task: id.clone() })?;
        let found = entry.seq;
        if expected != found {
            return Err(StoreError::Stale { expected, found });
        }
        let owner = entry.owner.clone();
        let standing = task.standing();
        let content = content(task)?;
        let bytes = entry.bytes_with(events, &content);
        let grown = bytes.saturating_sub(entry.bytes);
        // The message of its client wakes a task that waits. It counts as worked on before the agent has said anything.
        let waits = entry.waits_after(events, standing.state);
        let runs = standing.finished_at.is_none() && !waits;
        let running = if runs { entry.added_running(bytes) } else { Running::default() };
        let may_run = self.check_running(&owner, running);
        let wanted = Wanted { owner: &owner, tasks: 0, bytes: grown, kept: Some(id) };
        match may_run.and_then(|()| self.make_room(wanted)) {
            // A task must be able to end, and then it can go.
            Err(StoreError::Full) if standing.finished_at.is_some() && events.len() == 1 => {}
            other => other?,
        }
        // It is there still: the task that wants the room is not the one that goes.
        let Some(entry) = self.tasks.get_mut(id) else { return Err(StoreError::NotFound { task: id.clone() }) };
        // Counted out as it was, and in as it is from now on.
        self.shares.remove(id, entry);
        (entry.content, entry.standing, entry.bytes, entry.waits) = (content, standing, bytes, waits);
        entry.log(events);
        self.shares.add(id, entry);
        let seq = entry.seq;
        if waits {
            self.note_surplus(&owner);
        }
        Ok(seq)
    }

    pub(super) fn put_config(&mut self, id: &TaskId, config: &str, json: String) -> Result<(), StoreError> {
        let entry = self.tasks.get(id).ok_or_else(|| StoreError::NotFound { task: id.clone() })?;
        let replaced = entry.configs.get(config).map_or(0, String::len);
        if replaced == 0 && entry.configs.len() >= MAX_PUSH_CONFIGS {
            return Err(StoreError::TooManyConfigs { limit: MAX_PUSH_CONFIGS });
        }
        let owner = entry.owner.clone();
        let grown = json.len().saturating_sub(replaced);
        let runs = entry.rest() == Rest::Runs;
        // Configs of a task that waits or is finished can go with it, so only those of running tasks count here.
        self.check_running(&owner, Running { tasks: 0, bytes: if runs { grown } else { 0 } })?;
        self.make_room(Wanted { owner: &owner, tasks: 0, bytes: grown, kept: Some(id) })?;
        let Some(entry) = self.tasks.get_mut(id) else { return Err(StoreError::NotFound { task: id.clone() }) };
        self.shares.remove(id, entry);
        entry.bytes = entry.bytes + json.len() - replaced;
        entry.configs.insert(config.to_owned(), json);
        self.shares.add(id, entry);
        Ok(())
    }

    pub(super) fn delete_config(&mut self, id: &TaskId, config: &str) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        self.shares.remove(id, entry);
        entry.bytes -= entry.configs.remove(config).map_or(0, |json| json.len());
        self.shares.add(id, entry);
    }

    /// The owner's tasks that match, apart from the cursor of the query, in no order.
    pub(super) fn matching(&self, owner: &Owner, query: &TaskQuery) -> impl Iterator<Item = (TaskCursor, &Entry)> {
        let found = self.tasks.iter().filter(move |(_, entry)| entry.matches(owner, query));
        found.map(|(id, entry)| (TaskCursor { status_at: entry.standing.status_at, id: id.clone() }, entry))
    }

    /// Deletes tasks that finished before a time, or are the oldest of more than `count` of their tenant.
    pub(super) fn sweep(&mut self, before: i64, count: u64) -> u64 {
        let beyond = self.shares.finished_beyond(before, count);
        self.remove_all(&beyond)
    }

    /// Deletes the oldest finished tasks of more than `count` of a tenant.
    pub(super) fn sweep_tenant(&mut self, tenant: &str, count: u64) -> u64 {
        let beyond = self.shares.finished_surplus(tenant, count);
        self.remove_all(&beyond)
    }

    fn remove_all(&mut self, ids: &[TaskId]) -> u64 {
        for id in ids {
            self.remove(id);
        }
        ids.len() as u64
    }

    /// Stores the answer to a message, if the store has room for the answer.
    pub(super) fn answer(&mut self, owner: &Owner, message: &MessageKey, answer: String) {
        let wanted = Wanted { owner, tasks: 0, bytes: answer.len(), kept: None };
        if self.messages.make_room(answer.len()) && self.make_room(wanted).is_ok() {
            self.messages.answer(owner, message, answer);
        }
    }

    pub(super) fn forget_unclaimed(&mut self, before: i64) {
        let tasks = &self.tasks;
        self.messages.forget_before(before, |task| !tasks.contains_key(task));
    }

    /// Tasks that wait, and are older than a time or more than their owner may have, oldest first; at most `limit`.
    pub(super) fn overdue(
        &self,
        bounds: &WaitingBounds,
        before: i64,
        skip: usize,
        limit: usize,
    ) -> Vec<(Owner, TaskId)> {
        let of_owner = self.shares.all_waiting().flat_map(|(owner, waiting)| {
            let surplus = waiting.len().saturating_sub(bounds.of(owner));
            let overdue = waiting.iter().enumerate();
            let overdue = overdue.take_while(move |(place, (since, _))| *place < surplus || *since < before);
            overdue.map(move |(_, (since, id))| (*since, owner.clone(), id.clone()))
        });
        let mut overdue: Vec<_> = of_owner.collect();
        overdue.sort_unstable_by(|(one, _, id), (other, _, other_id)| (one, id).cmp(&(other, other_id)));
        overdue.into_iter().skip(skip).take(limit).map(|(_, owner, id)| (owner, id)).collect()
    }

    /// A task that now waits may be one more than its owner may have.
    fn note_surplus(&mut self, owner: &Owner) {
        let mut waiting = self.shares.waiting(owner);
        if waiting.len() > self.bounds.waiting.of(owner)
            && let Some((_, oldest)) = waiting.next()
        {
            // The server fails it by its record, because readers of the task are to hear the end.
            self.notices.push(Notice::Surplus(owner.clone(), oldest.clone()));
        }
    }

    /// Refuses more than three quarters of the store to the running tasks of one owner, because running tasks are never
    /// dropped.
    fn check_running(&self, owner: &Owner, added: Running) -> Result<(), StoreError> {
        let three_quarters = |whole: usize| whole - whole / 4;
        let running = self.shares.running(owner);
        // An owner with too much may still do what adds nothing, such as ending a task.
        if added.tasks == 0 && added.bytes == 0 {
            return Ok(());
        }
        let fits = running.tasks + added.tasks <= three_quarters(self.bounds.max_tasks)
            && running.bytes.saturating_add(added.bytes) <= three_quarters(self.bounds.max_bytes);
        if fits { Ok(()) } else { Err(StoreError::Full) }
    }

    /// Drops finished or waiting tasks until the change fits.
    fn make_room(&mut self, wanted: Wanted<'_>) -> Result<(), StoreError> {
        if wanted.bytes > self.bounds.max_bytes {
            // Nothing that goes would help.
            return Err(StoreError::Full);
        }
        while let Some(measure) = self.excess(wanted) {
            let victim = self.shares.victim(measure, wanted).ok_or(StoreError::Full)?;
            // A finished task goes silently. One that waits is known to the server, which forgets it with the store.
            if self.tasks.get(&victim).is_some_and(|entry| entry.waits) {
                self.notices.push(Notice::Gone(victim.clone()));
            }
            self.remove(&victim);
        }
        Ok(())
    }

    /// The measure by which the store would be too full; `None` if there is room.
    fn excess(&self, wanted: Wanted<'_>) -> Option<Measure> {
        if self.tasks.len() + wanted.tasks > self.bounds.max_tasks {
            return Some(Measure::Tasks);
        }
        let bytes = self.shares.bytes().saturating_add(self.messages.answer_bytes()).saturating_add(wanted.bytes);
        (bytes > self.bounds.max_bytes).then_some(Measure::Bytes)
    }

    fn remove(&mut self, id: &TaskId) {
        let Some(entry) = self.tasks.remove(id) else { return };
        self.shares.remove(id, &entry);
        // A repeated message would otherwise be answered with a task that is not there.
        self.messages.forget_task(id);
    }
}
