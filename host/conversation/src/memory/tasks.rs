//! Tasks in memory, bounded by count and bytes.
//!
//! A task with a turn is never dropped. A full store drops the oldest finished task of the owner with the largest share,
//! then the oldest waiting task.

use std::collections::{BTreeMap, HashMap};

use annex_protocol::{ContextId, TaskId, TaskState, Timestamp};

use super::bounds::MemoryBounds;
use super::shares::{RoomWanted, RunningTasks, Shares, Shortage};
use crate::configs::{ConfigError, MAX_PUSH_CONFIGS};
use crate::entry::{Entry, EntryContent, Note, StoredEntry};
use crate::error::{AppendError, StoreError};
use crate::key::{ConversationKey, Owner};
use crate::page::{TaskCursor, TaskQuery};
use crate::retention::{Keep, WaitingBounds};
use crate::size;
use crate::stored_task::{StoredTask, TaskContent};
use crate::task::TaskSnapshot;

/// The time of a status without a timestamp. It is earlier than all other times.
const NO_TIMESTAMP: i64 = i64::MIN;

/// Whether the store may drop a task, and since when the task has been finished or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The task has a turn and stays.
    Runs,
    /// The task waits for its client.
    Waits(i64),
    Finished(i64),
}

/// One task.
pub(super) struct TaskSlot {
    pub(super) key: ConversationKey,
    content: TaskContent,
    state: TaskState,
    status_at: i64,
    /// The time when the task reached its final state; `None` for an unfinished task.
    finished_at: Option<i64>,
    /// True while the queue has a turn of the task.
    is_worked_on: bool,
    /// The number of the last entry of the task.
    number: u64,
    /// The entries of an unfinished task, with their numbers. Events are in the history of the conversation.
    entries: Vec<(u64, Entry)>,
    /// Push notification configs as JSON, by their ids.
    pub(super) configs: BTreeMap<String, String>,
    pins: Option<std::sync::Arc<str>>,
    upstream: Option<std::sync::Arc<str>>,
    /// Bytes of task, entries and configs.
    bytes: usize,
}

/// The change of a task by an append.
pub(super) struct TaskChange<'a> {
    pub(super) key: &'a ConversationKey,
    pub(super) entries: &'a [Entry],
    pub(super) task: &'a TaskSnapshot,
    /// True if a turn works on the task after the append.
    pub(super) is_worked_on: bool,
}

/// The effects of a change on other tasks: the tasks that were dropped, and a waiting task beyond the limit of its owner.
#[derive(Default)]
pub(super) struct Consequences {
    /// All tasks that were dropped.
    pub(super) dropped: Vec<TaskId>,
    /// The dropped tasks that waited for their client.
    pub(super) displaced: Vec<TaskId>,
    pub(super) surplus: Option<TaskId>,
}

pub(super) struct Tasks {
    max_tasks: usize,
    max_bytes: usize,
    waiting: WaitingBounds,
    tasks: HashMap<TaskId, TaskSlot>,
    shares: Shares,
    /// The bytes of answers to messages. Answers and tasks share one bound.
    pub(super) answer_bytes: usize,
}

impl TaskSlot {
    fn new(key: &ConversationKey) -> Self {
        Self {
            key: key.clone(),
            content: TaskContent::Json(std::sync::Arc::default()),
            state: TaskState::default(),
            status_at: NO_TIMESTAMP,
            finished_at: None,
            is_worked_on: false,
            number: 0,
            entries: Vec::new(),
            configs: BTreeMap::new(),
            pins: None,
            upstream: None,
            bytes: 0,
        }
    }

    pub(super) fn rest(&self) -> Rest {
        match self.finished_at {
            Some(since) => Rest::Finished(since),
            None if self.is_worked_on => Rest::Runs,
            None => Rest::Waits(self.status_at),
        }
    }

    /// Bytes of task, entries and configs.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the task as it is now.
    pub(super) fn task_bytes(&self) -> usize {
        self.content.bytes()
    }

    /// The bytes that the slot takes after an append of `entries`, when `content` is the new content of the task.
    fn bytes_with(&self, entries: &[Entry], content: &TaskContent) -> usize {
        match content {
            TaskContent::Json(_) | TaskContent::Entries(_) => {
                content.bytes() + self.configs.values().map(String::len).sum::<usize>()
            }
            // A task that waits to begin has no entries yet, so the size of the task counts.
            TaskContent::Value(task) if self.number == 0 && entries.is_empty() => task.size().bytes,
            TaskContent::Value(_) => self.bytes + size::of_entries(entries),
        }
    }

    fn apply(&mut self, change: &TaskChange<'_>, content: TaskContent) {
        let status_at = change.task.status_at();
        self.state = change.task.state();
        self.status_at = status_at.map_or(NO_TIMESTAMP, Timestamp::as_millis);
        // A final status without a timestamp counts from now, so that its task is swept in time.
        let finished = self.state.is_terminal().then(|| status_at.unwrap_or_else(Timestamp::now).as_millis());
        self.finished_at = finished;
        self.is_worked_on = change.is_worked_on && finished.is_none();
        self.bytes = self.bytes_with(change.entries, &content);
        self.content = content;
        for (entry, number) in change.entries.iter().zip(self.number.saturating_add(1)..) {
            match entry {
                Entry::Note(Note::Pins(text)) => self.pins = Some(text.clone()),
                Entry::Note(Note::UpstreamTask(text)) => self.upstream = Some(text.clone()),
                Entry::Event(_) | Entry::Note(Note::UpstreamContext(_) | Note::Receipt(_)) => {}
                Entry::Message(_) | Entry::Update(_) => self.entries.push((number, entry.clone())),
            }
        }
        self.number = self.number.saturating_add(change.entries.len() as u64);
        if finished.is_some() {
            // Assigned and not cleared: `clear` would keep the memory of entries that nobody reads any more.
            self.entries = Vec::new();
        }
    }

    fn matches(&self, owner: &Owner, query: &TaskQuery) -> bool {
        self.key.owner() == owner
            && query.context.as_ref().is_none_or(|context: &ContextId| self.key.context == *context)
            && query.state.is_none_or(|state| self.state == state)
            && query.status_after.map(Timestamp::as_millis).is_none_or(|after| self.status_at >= after)
    }

    fn stored(&self, id: &TaskId) -> StoredTask {
        let rest = self.rest();
        StoredTask {
            id: id.clone(),
            key: self.key.clone(),
            number: self.number,
            is_worked_on: rest == Rest::Runs,
            is_finished: matches!(rest, Rest::Finished(_)),
            pins: self.pins.clone(),
            upstream: self.upstream.clone(),
            content: self.content.clone(),
        }
    }
}

impl Tasks {
    pub(super) fn new(bounds: &MemoryBounds) -> Self {
        let MemoryBounds { max_tasks, max_task_bytes: max_bytes, waiting, .. } = *bounds;
        Self { max_tasks, max_bytes, waiting, tasks: HashMap::new(), shares: Shares::default(), answer_bytes: 0 }
    }

    pub(super) fn has(&self, id: &TaskId) -> bool {
        self.tasks.contains_key(id)
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<&TaskSlot> {
        self.tasks.get(id)
    }

    /// The number of the last entry of a task; 0 if the task does not exist.
    pub(super) fn number(&self, id: &TaskId) -> u64 {
        self.tasks.get(id).map_or(0, |slot| slot.number)
    }

    pub(super) fn stored(&self, id: &TaskId) -> Option<StoredTask> {
        self.tasks.get(id).map(|slot| slot.stored(id))
    }

    /// The number of tasks of a tenant.
    pub(super) fn count(&self, tenant: &str) -> u64 {
        self.shares.tasks_of(tenant) as u64
    }

    pub(super) fn entries_after(&self, id: &TaskId, after: u64, limit: usize) -> Vec<StoredEntry> {
        let Some(slot) = self.tasks.get(id) else { return Vec::new() };
        let seen = slot.entries.partition_point(|(number, _)| *number <= after);
        let unseen = slot.entries.iter().skip(seen).take(limit);
        unseen
            .map(|(number, entry)| StoredEntry { number: *number, content: EntryContent::Value(entry.clone()) })
            .collect()
    }

    /// The owner's tasks that match the query, in no order. The cursor of the query is ignored.
    pub(super) fn matching(&self, owner: &Owner, query: &TaskQuery) -> Vec<(TaskCursor, usize)> {
        let found = self.tasks.iter().filter(|(_, slot)| slot.matches(owner, query));
        let cursor = |(id, slot): (&TaskId, &TaskSlot)| {
            (TaskCursor { status_at: slot.status_at, id: id.clone() }, slot.task_bytes())
        };
        found.map(cursor).collect()
    }

    /// Stores a task as an append changes it, and creates a missing task. A refusal changes nothing except the tasks that
    /// were dropped for room.
    pub(super) fn store(&mut self, id: &TaskId, change: &TaskChange<'_>) -> Result<Consequences, AppendError> {
        let new = TaskSlot::new(change.key);
        let slot = self.tasks.get(id).unwrap_or(&new);
        let is_new = !self.tasks.contains_key(id);
        let is_finished = change.task.state().is_terminal();
        // A finished task is kept as JSON, which takes a fraction of the memory.
        let content = match is_finished {
            true => TaskContent::Json(change.task.stored_json().map_err(StoreError::from)?),
            false => TaskContent::Value(change.task.clone()),
        };
        let bytes = slot.bytes_with(change.entries, &content);
        let grown = bytes.saturating_sub(slot.bytes);
        let runs = change.is_worked_on && !is_finished;
        let ran = !is_new && slot.rest() == Rest::Runs;
        let running = match (runs, ran) {
            (false, _) => RunningTasks::default(),
            (true, true) => RunningTasks { tasks: 0, bytes: grown },
            (true, false) => RunningTasks { tasks: 1, bytes },
        };
        let owner = change.key.owner();
        let mut consequences = Consequences::default();
        // Checked before room is made: no other task is dropped for a task that is refused.
        let room = self.check_running(owner, running).and_then(|()| {
            let wanted = RoomWanted { owner, tasks: usize::from(is_new), bytes: grown, kept: Some(id) };
            self.make_room(wanted, &mut consequences)
        });
        match room {
            // A task must be able to end. After that it can be dropped.
            Err(AppendError::Full) if is_finished && change.entries.len() == 1 => {}
            other => other?,
        }
        // The task is subtracted from the share with its old size, and added with its new one.
        let slot = self.tasks.entry(id.clone()).or_insert(new);
        if !is_new {
            self.shares.remove(id, slot);
        }
        slot.apply(change, content);
        self.shares.add(id, slot);
        if matches!(slot.rest(), Rest::Waits(_)) {
            consequences.surplus = self.surplus(owner);
        }
        Ok(consequences)
    }

    /// Records whether the queue has a turn of the task.
    pub(super) fn set_worked_on(&mut self, id: &TaskId, is_worked_on: bool) {
        let Some(slot) = self.tasks.get_mut(id) else { return };
        self.shares.remove(id, slot);
        slot.is_worked_on = is_worked_on;
        self.shares.add(id, slot);
    }

    pub(super) fn put_config(&mut self, id: &TaskId, config: &str, json: String) -> Result<(), ConfigError> {
        let Some(slot) = self.tasks.get(id) else { return Err(AppendError::Missing.into()) };
        let replaced = slot.configs.get(config).map_or(0, String::len);
        if replaced == 0 && slot.configs.len() >= MAX_PUSH_CONFIGS {
            return Err(ConfigError::TooMany { limit: MAX_PUSH_CONFIGS });
        }
        let key = slot.key.clone();
        let grown = json.len().saturating_sub(replaced);
        let runs = slot.rest() == Rest::Runs;
        // Configs of a waiting or finished task can be dropped with the task, so only those of running tasks count
        // here.
        self.check_running(key.owner(), RunningTasks { tasks: 0, bytes: if runs { grown } else { 0 } })?;
        let wanted = RoomWanted { owner: key.owner(), tasks: 0, bytes: grown, kept: Some(id) };
        self.make_room(wanted, &mut Consequences::default())?;
        self.change_configs(id, |configs| configs.insert(config.to_owned(), json));
        Ok(())
    }

    pub(super) fn delete_config(&mut self, id: &TaskId, config: &str) {
        self.change_configs(id, |configs| configs.remove(config));
    }

    fn change_configs(&mut self, id: &TaskId, change: impl FnOnce(&mut BTreeMap<String, String>) -> Option<String>) {
        let Some(slot) = self.tasks.get_mut(id) else { return };
        self.shares.remove(id, slot);
        let size = |slot: &TaskSlot| slot.configs.values().map(String::len).sum::<usize>();
        let before = size(slot);
        change(&mut slot.configs);
        slot.bytes = slot.bytes + size(slot) - before;
        self.shares.add(id, slot);
    }

    /// Deletes the finished tasks that are too old, and for each tenant with too many finished tasks the oldest ones. Returns
    /// the deleted tasks.
    pub(super) fn sweep(&mut self, keep: &Keep, now: i64) -> Vec<TaskId> {
        let beyond = self.shares.finished_beyond(keep.before(now), keep.count);
        beyond.iter().for_each(|id| self.remove(id));
        beyond
    }

    /// Deletes the oldest finished tasks of a tenant until `count` are left. Returns the deleted tasks.
    pub(super) fn sweep_tenant(&mut self, tenant: &str, count: u64) -> Vec<TaskId> {
        let beyond = self.shares.finished_surplus(tenant, count);
        beyond.iter().for_each(|id| self.remove(id));
        beyond
    }

    /// At most `limit` tasks that should not wait any longer, the oldest first. These are the tasks that have waited for too
    /// long, and for each owner with too many waiting tasks the oldest ones.
    pub(super) fn overdue(&self, bounds: &WaitingBounds, now: i64, limit: usize) -> Vec<TaskId> {
        let before = bounds.waited_before(now);
        let of_owner = self.shares.all_waiting().flat_map(|(owner, waiting)| {
            let surplus = waiting.len().saturating_sub(bounds.of(owner));
            let overdue = waiting.iter().enumerate();
            overdue.take_while(move |(index, (since, _))| *index < surplus || *since < before).map(|(_, task)| task)
        });
        let mut overdue: Vec<_> = of_owner.collect();
        overdue.sort_unstable();
        overdue.into_iter().take(limit).map(|(_, id)| id.clone()).collect()
    }

    pub(super) fn remove(&mut self, id: &TaskId) {
        if let Some(slot) = self.tasks.remove(id) {
            self.shares.remove(id, &slot);
        }
    }

    /// The oldest waiting task of an owner with too many waiting tasks. `None` if the owner is within the limit.
    fn surplus(&self, owner: &Owner) -> Option<TaskId> {
        let mut waiting = self.shares.waiting(owner);
        if waiting.len() > self.waiting.of(owner) { waiting.next().map(|(_, id)| id.clone()) } else { None }
    }

    /// Checks that the running tasks of an owner fill at most three quarters of the store. Running tasks cannot be
    /// dropped.
    fn check_running(&self, owner: &Owner, added: RunningTasks) -> Result<(), AppendError> {
        let three_quarters = |whole: usize| whole - whole / 4;
        // An owner above the limit may still make changes that add nothing, such as ending a task.
        if added.tasks == 0 && added.bytes == 0 {
            return Ok(());
        }
        let running = self.shares.running(owner);
        let fits = running.tasks + added.tasks <= three_quarters(self.max_tasks)
            && running.bytes.saturating_add(added.bytes) <= three_quarters(self.max_bytes);
        if fits { Ok(()) } else { Err(AppendError::Full) }
    }

    /// Drops finished and waiting tasks until the request fits.
    pub(super) fn make_room(
        &mut self,
        wanted: RoomWanted<'_>,
        consequences: &mut Consequences,
    ) -> Result<(), AppendError> {
        if wanted.bytes > self.max_bytes {
            // Dropping other tasks would not help.
            return Err(AppendError::Full);
        }
        while let Some(shortage) = self.shortage(wanted) {
            let victim = self.shares.victim(shortage, wanted).ok_or(AppendError::Full)?;
            // A finished task is dropped silently. A waiting task may have readers.
            if self.tasks.get(&victim).is_some_and(|slot| matches!(slot.rest(), Rest::Waits(_))) {
                consequences.displaced.push(victim.clone());
            }
            self.remove(&victim);
            consequences.dropped.push(victim);
        }
        Ok(())
    }

    /// The bound that the request would exceed; `None` if the request fits.
    fn shortage(&self, wanted: RoomWanted<'_>) -> Option<Shortage> {
        if self.tasks.len() + wanted.tasks > self.max_tasks {
            return Some(Shortage::Tasks);
        }
        let bytes = self.shares.bytes().saturating_add(self.answer_bytes).saturating_add(wanted.bytes);
        (bytes > self.max_bytes).then_some(Shortage::Bytes)
    }
}
