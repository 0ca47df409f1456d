//! The table of a memory store: what is kept, and what has to go for it.

use std::collections::{BTreeMap, HashMap};

use annex_protocol::{ContextId, TaskId, Timestamp};

use super::MemoryBounds;
use super::messages::SeenMessages;
use super::shares::{Measure, Shares, Wanted};
use crate::record::Snapshot;
use crate::{MAX_PUSH_CONFIGS, MessageKey, Owner, StoreError, StoredEvent, StoredTask, TaskCursor, TaskQuery};

pub(super) struct Entry {
    pub(super) owner: Owner,
    context: ContextId,
    pub(super) snapshot: Snapshot,
    /// Never empty; the number of an event is its index and one.
    pub(super) events: Vec<StoredEvent>,
    /// Configs as JSON, by their ids.
    pub(super) configs: BTreeMap<String, String>,
    /// Bytes of events and configs; those of the snapshot change as a whole.
    attached: usize,
}

impl Entry {
    pub(super) fn new(owner: Owner, context: ContextId, snapshot: Snapshot, event: StoredEvent) -> Self {
        let attached = event.json.len();
        Self { owner, context, snapshot, events: vec![event], configs: BTreeMap::new(), attached }
    }

    pub(super) fn stored(&self, id: &TaskId) -> StoredTask {
        StoredTask { id: id.clone(), seq: self.last_seq(), json: self.snapshot.json.clone() }
    }

    fn last_seq(&self) -> u64 {
        self.events.len() as u64
    }

    pub(super) fn finished_at(&self) -> Option<i64> {
        self.snapshot.finished_at
    }

    pub(super) fn bytes(&self) -> usize {
        self.attached + self.snapshot.json.len()
    }

    fn matches(&self, owner: &Owner, query: &TaskQuery) -> bool {
        self.owner == *owner
            && query.context.as_ref().is_none_or(|context| self.context == *context)
            && query.state.is_none_or(|state| self.snapshot.state == state)
            && query.status_after.map(Timestamp::as_millis).is_none_or(|after| self.snapshot.status_at >= after)
    }
}

pub(super) struct Table {
    bounds: MemoryBounds,
    pub(super) tasks: HashMap<TaskId, Entry>,
    shares: Shares,
    pub(super) messages: SeenMessages,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What clients sent is not for logs.
        let (tasks, bytes) = (self.tasks.len(), self.shares.bytes());
        formatter.debug_struct("Table").field("tasks", &tasks).field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl Table {
    pub(super) fn new(bounds: MemoryBounds) -> Self {
        let messages = SeenMessages::new(bounds.max_tasks.saturating_mul(4), bounds.max_bytes / 4);
        Self { bounds, tasks: HashMap::new(), shares: Shares::default(), messages }
    }

    pub(super) fn insert(&mut self, id: TaskId, entry: Entry) -> Result<(), StoreError> {
        if self.tasks.contains_key(&id) {
            return Err(StoreError::AlreadyExists { task: id });
        }
        self.make_room(Wanted { owner: &entry.owner, tasks: 1, bytes: entry.bytes(), kept: None })?;
        self.shares.add(&id, &entry);
        self.tasks.insert(id, entry);
        Ok(())
    }

    pub(super) fn append(&mut self, id: &TaskId, event: StoredEvent, snapshot: Snapshot) -> Result<u64, StoreError> {
        let entry = self.tasks.get(id).ok_or_else(|| StoreError::NotFound { task: id.clone() })?;
        let (expected, found) = (event.seq.saturating_sub(1), entry.last_seq());
        if expected != found {
            return Err(StoreError::Stale { expected, found });
        }
        let grown = (event.json.len() + snapshot.json.len()).saturating_sub(entry.snapshot.json.len());
        let owner = entry.owner.clone();
        match self.make_room(Wanted { owner: &owner, tasks: 0, bytes: grown, kept: Some(id) }) {
            // A task must be able to end, and then it can go.
            Err(StoreError::Full) if snapshot.finished_at.is_some() => {}
            other => other?,
        }
        let Some(entry) = self.tasks.get_mut(id) else { return Err(StoreError::NotFound { task: id.clone() }) };
        self.shares.remove(id, entry);
        let seq = event.seq;
        entry.attached += event.json.len();
        entry.events.push(event);
        entry.snapshot = snapshot;
        self.shares.add(id, entry);
        Ok(seq)
    }

    pub(super) fn put_config(&mut self, id: &TaskId, config: &str, json: String) -> Result<(), StoreError> {
        let entry = self.tasks.get(id).ok_or_else(|| StoreError::NotFound { task: id.clone() })?;
        let replaced = entry.configs.get(config).map_or(0, String::len);
        if replaced == 0 && entry.configs.len() >= MAX_PUSH_CONFIGS {
            return Err(StoreError::TooManyConfigs { limit: MAX_PUSH_CONFIGS });
        }
        let (owner, grown) = (entry.owner.clone(), json.len().saturating_sub(replaced));
        self.make_room(Wanted { owner: &owner, tasks: 0, bytes: grown, kept: Some(id) })?;
        let Some(entry) = self.tasks.get_mut(id) else { return Err(StoreError::NotFound { task: id.clone() }) };
        self.shares.remove(id, entry);
        entry.attached = entry.attached + json.len() - replaced;
        entry.configs.insert(config.to_owned(), json);
        self.shares.add(id, entry);
        Ok(())
    }

    pub(super) fn delete_config(&mut self, id: &TaskId, config: &str) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        self.shares.remove(id, entry);
        entry.attached -= entry.configs.remove(config).map_or(0, |json| json.len());
        self.shares.add(id, entry);
    }

    /// The owner's tasks that match, apart from the cursor of the query, in no order.
    pub(super) fn matching(&self, owner: &Owner, query: &TaskQuery) -> impl Iterator<Item = (TaskCursor, &Entry)> {
        let found = self.tasks.iter().filter(move |(_, entry)| entry.matches(owner, query));
        found.map(|(id, entry)| (TaskCursor { status_at: entry.snapshot.status_at, id: id.clone() }, entry))
    }

    /// Deletes tasks that finished before a time or are more than `count`, oldest first.
    pub(super) fn sweep(&mut self, before: i64, count: u64) -> u64 {
        let mut swept = 0;
        while let (finished, Some((at, id))) = self.shares.finished()
            && (*at < before || finished as u64 > count)
        {
            let id = id.clone();
            self.remove(&id);
            swept += 1;
        }
        swept
    }

    /// Keeps the answer to a message, if there is room for it.
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

    /// Drops finished tasks until there is room for what is wanted.
    fn make_room(&mut self, wanted: Wanted<'_>) -> Result<(), StoreError> {
        if wanted.bytes > self.bounds.max_bytes {
            // Nothing that goes would help.
            return Err(StoreError::Full);
        }
        while let Some(measure) = self.excess(wanted) {
            let victim = self.shares.victim(measure, wanted).ok_or(StoreError::Full)?;
            self.remove(&victim);
        }
        Ok(())
    }

    /// What there would be too much of.
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
        self.messages.forget_task(id);
    }
}
