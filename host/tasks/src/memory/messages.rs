//! The messages that were seen, the oldest forgotten first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use annex_protocol::{ContextId, MessageId, TaskId, Timestamp};

use crate::{MessageKey, Owner, Remembered};

type SeenKey = (Owner, ContextId, MessageId);

#[derive(Debug)]
struct Seen {
    digest: [u8; 32],
    task: TaskId,
    at: i64,
    /// Its key in [`SeenMessages::order`].
    number: u64,
}

#[derive(Debug)]
pub(super) struct SeenMessages {
    max: usize,
    seen: HashMap<SeenKey, Seen>,
    order: BTreeMap<u64, SeenKey>,
    /// The numbers of a task's messages.
    of_task: HashMap<TaskId, BTreeSet<u64>>,
    next_number: u64,
}

impl SeenMessages {
    pub(super) fn new(max: usize) -> Self {
        let (seen, order, of_task) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Self { max, seen, order, of_task, next_number: 0 }
    }

    pub(super) fn remember(&mut self, owner: &Owner, message: &MessageKey, task: &TaskId) -> Remembered {
        let key = key(owner, message);
        match self.seen.get(&key) {
            Some(seen) if seen.digest == message.digest => return Remembered::Same(seen.task.clone()),
            Some(_) => return Remembered::Different,
            None => {}
        }
        let number = self.next_number;
        self.next_number += 1;
        let seen = Seen { digest: message.digest, task: task.clone(), at: Timestamp::now().as_millis(), number };
        self.order.insert(number, key.clone());
        self.of_task.entry(task.clone()).or_default().insert(number);
        self.seen.insert(key, seen);
        while self.seen.len() > self.max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
        Remembered::New
    }

    pub(super) fn forget(&mut self, owner: &Owner, message: &MessageKey) {
        let key = key(owner, message);
        if self.seen.get(&key).is_some_and(|seen| seen.digest == message.digest) {
            self.remove(&key);
        }
    }

    pub(super) fn forget_task(&mut self, task: &TaskId) {
        for number in self.of_task.remove(task).unwrap_or_default() {
            if let Some(key) = self.order.remove(&number) {
                self.seen.remove(&key);
            }
        }
    }

    /// Forgets those remembered before a time whose task `is_unclaimed`.
    pub(super) fn forget_before(&mut self, time: i64, is_unclaimed: impl Fn(&TaskId) -> bool) {
        let old = self.seen.iter().filter(|(_, seen)| seen.at < time && is_unclaimed(&seen.task));
        let old: Vec<SeenKey> = old.map(|(key, _)| key.clone()).collect();
        for key in &old {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &SeenKey) {
        let Some(seen) = self.seen.remove(key) else { return };
        self.order.remove(&seen.number);
        if let Some(numbers) = self.of_task.get_mut(&seen.task) {
            numbers.remove(&seen.number);
            if numbers.is_empty() {
                self.of_task.remove(&seen.task);
            }
        }
    }
}

fn key(owner: &Owner, message: &MessageKey) -> SeenKey {
    (owner.clone(), message.context.clone(), message.message.clone())
}
