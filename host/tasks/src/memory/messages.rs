//! The messages seen so far. If there are too many, the owner with the most loses its oldest one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use annex_protocol::{ContextId, MessageId, Owner, TaskId, Timestamp};

use crate::record::repeated;
use crate::{MessageKey, Remembered, StoreError};

type SeenKey = (Owner, ContextId, MessageId);

#[derive(Debug)]
struct Seen {
    digest: [u8; 32],
    task: TaskId,
    at: i64,
    /// A message as JSON.
    answer: Option<String>,
    /// Its key in [`SeenMessages::order`].
    number: u64,
}

#[derive(Debug)]
pub(super) struct SeenMessages {
    max: usize,
    max_answer_bytes: usize,
    seen: HashMap<SeenKey, Seen>,
    order: BTreeMap<u64, SeenKey>,
    /// The numbers of a task's messages.
    of_task: HashMap<TaskId, BTreeSet<u64>>,
    by_owner: HashMap<Owner, OwnMessages>,
    answer_bytes: usize,
    next_number: u64,
}

/// The messages of one owner, by their numbers.
#[derive(Debug, Default)]
struct OwnMessages {
    all: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    answer_bytes: usize,
}

impl SeenMessages {
    pub(super) fn new(max: usize, max_answer_bytes: usize) -> Self {
        let seen = HashMap::new();
        let order = BTreeMap::new();
        let of_task = HashMap::new();
        let by_owner = HashMap::new();
        let answer_bytes = 0;
        let next_number = 0;
        Self { max, max_answer_bytes, seen, order, of_task, by_owner, answer_bytes, next_number }
    }

    pub(super) fn remember(
        &mut self,
        owner: &Owner,
        message: &MessageKey,
        task: &TaskId,
    ) -> Result<Remembered, StoreError> {
        let key = key(owner, message);
        match self.seen.get(&key) {
            Some(seen) if seen.digest == message.digest => return repeated(&seen.task, seen.answer.as_deref()),
            Some(_) => return Ok(Remembered::Different),
            None => {}
        }
        let number = self.next_number;
        self.next_number += 1;
        let at = Timestamp::now().as_millis();
        let seen = Seen { digest: message.digest, task: task.clone(), at, answer: None, number };
        self.order.insert(number, key.clone());
        self.by_owner.entry(owner.clone()).or_default().all.insert(number);
        self.of_task.entry(task.clone()).or_default().insert(number);
        self.seen.insert(key, seen);
        // A client that floods the store with ids pushes out its own messages, not those of others.
        while self.seen.len() > self.max
            && let Some(oldest) = self.oldest_of_most(|own| (own.all.len(), &own.all))
        {
            self.remove_number(oldest);
        }
        Ok(Remembered::New)
    }

    /// Forgets answered messages until `bytes` more bytes of answers fit. Returns false if they can never fit.
    pub(super) fn make_room(&mut self, bytes: usize) -> bool {
        // It would not fit into an empty store either, so nobody else's answer goes for it.
        if bytes > self.max_answer_bytes {
            return false;
        }
        while self.answer_bytes + bytes > self.max_answer_bytes
            && let Some(oldest) = self.oldest_of_most(|own| (own.answer_bytes, &own.answered))
        {
            self.remove_number(oldest);
        }
        true
    }

    /// The oldest message of the owner with the largest measured size; among equal owners, the oldest of all. Reads
    /// every owner.
    fn oldest_of_most(&self, measured: impl Fn(&OwnMessages) -> (usize, &BTreeSet<u64>)) -> Option<u64> {
        let oldest = self.by_owner.values().map(measured);
        let oldest = oldest.filter_map(|(size, numbers)| Some((size, Reverse(*numbers.first()?))));
        oldest.max().map(|(_, Reverse(number))| number)
    }

    pub(super) fn answer(&mut self, owner: &Owner, message: &MessageKey, answer: String) {
        let seen = self.seen.get_mut(&key(owner, message));
        let Some(seen) = seen.filter(|seen| seen.digest == message.digest && seen.answer.is_none()) else { return };
        self.answer_bytes += answer.len();
        if let Some(own) = self.by_owner.get_mut(owner) {
            own.answer_bytes += answer.len();
            own.answered.insert(seen.number);
        }
        seen.answer = Some(answer);
    }

    pub(super) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Forgets answered messages that are older than a time, or the oldest of more than `count` of their tenant.
    pub(super) fn sweep_answers(&mut self, before: i64, count: u64) {
        let mut of_tenants: HashMap<&str, Vec<u64>> = HashMap::new();
        for (owner, own) in &self.by_owner {
            of_tenants.entry(&owner.tenant).or_default().extend(&own.answered);
        }
        let mut beyond = Vec::new();
        for mut answered in of_tenants.into_values() {
            answered.sort_unstable();
            let surplus = (answered.len() as u64).saturating_sub(count);
            let swept = (0..).zip(answered).filter(|(place, number)| *place < surplus || self.at(*number) < before);
            beyond.extend(swept.map(|(_, number)| number));
        }
        for number in beyond {
            self.remove_number(number);
        }
    }

    fn at(&self, number: u64) -> i64 {
        let seen = self.order.get(&number).and_then(|key| self.seen.get(key));
        seen.map_or(i64::MAX, |seen| seen.at)
    }

    pub(super) fn forget(&mut self, owner: &Owner, message: &MessageKey) {
        let key = key(owner, message);
        // Another message that has the same id stays.
        if self.seen.get(&key).is_some_and(|seen| seen.digest == message.digest) {
            self.remove(&key);
        }
    }

    pub(super) fn forget_task(&mut self, task: &TaskId) {
        for number in self.of_task.get(task).cloned().unwrap_or_default() {
            self.remove_number(number);
        }
    }

    /// Forgets those remembered before a time that have no answer and whose task `is_unclaimed`.
    pub(super) fn forget_before(&mut self, time: i64, is_unclaimed: impl Fn(&TaskId) -> bool) {
        let is_old = |seen: &Seen| seen.at < time && seen.answer.is_none() && is_unclaimed(&seen.task);
        let old = self.seen.iter().filter(|(_, seen)| is_old(seen));
        let old: Vec<SeenKey> = old.map(|(key, _)| key.clone()).collect();
        for key in &old {
            self.remove(key);
        }
    }

    fn remove_number(&mut self, number: u64) {
        if let Some(key) = self.order.get(&number).cloned() {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &SeenKey) {
        let Some(seen) = self.seen.remove(key) else { return };
        self.order.remove(&seen.number);
        let answer_bytes = seen.answer.as_ref().map_or(0, String::len);
        self.answer_bytes -= answer_bytes;
        if let Some(own) = self.by_owner.get_mut(&key.0) {
            own.all.remove(&seen.number);
            own.answered.remove(&seen.number);
            own.answer_bytes -= answer_bytes;
            if own.all.is_empty() {
                self.by_owner.remove(&key.0);
            }
        }
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
