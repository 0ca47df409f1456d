//! Claims of messages in memory. If the store has too many claims, the owner with the most claims loses its oldest claim.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use annex_protocol::{ContextId, Message, MessageId, TaskId, Timestamp};

use crate::claim::{Claim, Claimant, MessageKey};
use crate::fence::Leases;
use crate::key::Owner;
use crate::retention::Keep;

type ClaimKey = (Owner, ContextId, MessageId);

/// The claims of all messages. Each claim has a number, in the order of arrival.
pub(super) struct Claims {
    max: usize,
    max_answer_bytes: usize,
    claims: HashMap<ClaimKey, KeptClaim>,
    order: BTreeMap<u64, ClaimKey>,
    /// The numbers of the claims, by task.
    of_task: HashMap<TaskId, BTreeSet<u64>>,
    by_owner: HashMap<Owner, OwnClaims>,
    answer_bytes: usize,
    next_number: u64,
}

struct KeptClaim {
    digest: [u8; 32],
    task: TaskId,
    at: i64,
    /// Who decides about the message; `None` once the message is accepted or answered.
    open: Option<Claimant>,
    answer: Option<KeptAnswer>,
    number: u64,
}

struct KeptAnswer {
    message: Box<Message>,
    bytes: usize,
}

/// The numbers of the claims of one owner.
#[derive(Default)]
struct OwnClaims {
    all: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    answer_bytes: usize,
}

impl Claims {
    pub(super) fn new(max: usize, max_answer_bytes: usize) -> Self {
        Self {
            max,
            max_answer_bytes,
            claims: HashMap::new(),
            order: BTreeMap::new(),
            of_task: HashMap::new(),
            by_owner: HashMap::new(),
            answer_bytes: 0,
            next_number: 0,
        }
    }

    pub(super) fn claim(
        &mut self,
        owner: &Owner,
        message: &MessageKey,
        task: &TaskId,
        (by, leases): (&Claimant, &dyn Leases),
    ) -> Claim {
        let key = key(owner, message);
        if let Some(claim) = self.claims.get_mut(&key) {
            return claim.again(message, (by, leases));
        }
        let number = self.next_number;
        self.next_number += 1;
        let at = Timestamp::now().as_millis();
        let claim =
            KeptClaim { digest: message.digest, task: task.clone(), at, open: Some(by.clone()), answer: None, number };
        self.order.insert(number, key.clone());
        self.by_owner.entry(owner.clone()).or_default().all.insert(number);
        self.of_task.entry(task.clone()).or_default().insert(number);
        self.claims.insert(key, claim);
        // A client that floods the store with ids pushes out its own messages, not those of others.
        while self.claims.len() > self.max
            && let Some(oldest) = self.oldest_of_most(|own| (own.all.len(), &own.all))
        {
            self.remove_number(oldest);
        }
        Claim::New(task.clone())
    }

    /// Deletes the claim of a message, if `by` holds it and the message was not accepted.
    pub(super) fn release(&mut self, owner: &Owner, message: &MessageKey, by: &Claimant) {
        let key = key(owner, message);
        let is_open = |claim: &KeptClaim| claim.digest == message.digest && claim.open.as_ref() == Some(by);
        if self.claims.get(&key).is_some_and(is_open) {
            self.remove(&key);
        }
    }

    /// Marks the message as accepted. Its claim then stays.
    pub(super) fn accept(&mut self, owner: &Owner, message: &MessageKey) {
        if let Some(claim) = self.claims.get_mut(&key(owner, message)) {
            claim.open = None;
        }
    }

    /// Drops answers until `bytes` more fit. Returns `false` if `bytes` exceeds the limit on all answers.
    pub(super) fn make_room(&mut self, bytes: usize) -> bool {
        // Such an answer would not even fit into an empty store, so no other answer is dropped for it.
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

    pub(super) fn answer(&mut self, owner: &Owner, message: &MessageKey, (answer, bytes): (&Message, usize)) {
        let Some(claim) = self.claims.get_mut(&key(owner, message)) else { return };
        claim.open = None;
        claim.answer = Some(KeptAnswer { message: Box::new(answer.clone()), bytes });
        self.answer_bytes += bytes;
        if let Some(own) = self.by_owner.get_mut(owner) {
            own.answer_bytes += bytes;
            own.answered.insert(claim.number);
        }
    }

    pub(super) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    pub(super) fn forget_task(&mut self, task: &TaskId) {
        for number in self.of_task.get(task).cloned().unwrap_or_default() {
            self.remove_number(number);
        }
    }

    /// Deletes the claims of answered messages that are too old. Also deletes the oldest answered claims of each tenant with
    /// too many answered claims.
    pub(super) fn sweep_answers(&mut self, keep: &Keep, now: i64) {
        let before = keep.before(now);
        let mut of_tenants: HashMap<&str, Vec<u64>> = HashMap::new();
        for (owner, own) in &self.by_owner {
            of_tenants.entry(&owner.tenant).or_default().extend(&own.answered);
        }
        let mut beyond = Vec::new();
        for mut answered in of_tenants.into_values() {
            answered.sort_unstable();
            let surplus = (answered.len() as u64).saturating_sub(keep.count);
            let swept = (0..).zip(answered).filter(|(index, number)| *index < surplus || self.at(*number) < before);
            beyond.extend(swept.map(|(_, number)| number));
        }
        beyond.into_iter().for_each(|number| self.remove_number(number));
    }

    /// Deletes claims without an answer that are older than `before` and whose task `is_missing`.
    pub(super) fn sweep_unanswered(&mut self, before: i64, is_missing: impl Fn(&TaskId) -> bool) {
        let is_old = |claim: &KeptClaim| claim.at < before && claim.answer.is_none() && is_missing(&claim.task);
        let old: Vec<ClaimKey> =
            self.claims.iter().filter(|(_, claim)| is_old(claim)).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.remove(key));
    }

    /// Finds the owner with the largest value of `measured`, and returns the number of that owner's oldest claim. If several
    /// owners have the largest value, the oldest of their claims counts. Scans all owners.
    fn oldest_of_most(&self, measured: impl Fn(&OwnClaims) -> (usize, &BTreeSet<u64>)) -> Option<u64> {
        let oldest = self.by_owner.values().map(measured);
        let oldest = oldest.filter_map(|(size, numbers)| Some((size, Reverse(*numbers.first()?))));
        oldest.max().map(|(_, Reverse(number))| number)
    }

    fn at(&self, number: u64) -> i64 {
        self.order.get(&number).and_then(|key| self.claims.get(key)).map_or(i64::MAX, |claim| claim.at)
    }

    fn remove_number(&mut self, number: u64) {
        if let Some(key) = self.order.get(&number).cloned() {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &ClaimKey) {
        let Some(claim) = self.claims.remove(key) else { return };
        self.order.remove(&claim.number);
        let answer_bytes = claim.answer.map_or(0, |answer| answer.bytes);
        self.answer_bytes -= answer_bytes;
        if let Some(own) = self.by_owner.get_mut(&key.0) {
            own.all.remove(&claim.number);
            own.answered.remove(&claim.number);
            own.answer_bytes -= answer_bytes;
            if own.all.is_empty() {
                self.by_owner.remove(&key.0);
            }
        }
        if let Some(numbers) = self.of_task.get_mut(&claim.task) {
            numbers.remove(&claim.number);
            if numbers.is_empty() {
                self.of_task.remove(&claim.task);
            }
        }
    }
}

impl KeptClaim {
    /// The result for `by`, who claims a message which already has this claim.
    fn again(&mut self, message: &MessageKey, (by, leases): (&Claimant, &dyn Leases)) -> Claim {
        if self.digest != message.digest {
            return Claim::Different;
        }
        if let Some(answer) = &self.answer {
            return Claim::Answered(answer.message.clone());
        }
        match &self.open {
            None => Claim::Repeated(self.task.clone()),
            Some(holder) if leases.is_alive(&holder.replica) => Claim::Open(self.task.clone()),
            // The process that had the claim is gone. The claim keeps its task id, so that only one of the two
            // processes can create the task.
            Some(_) => {
                self.open = Some(by.clone());
                Claim::New(self.task.clone())
            }
        }
    }
}

fn key(owner: &Owner, message: &MessageKey) -> ClaimKey {
    (owner.clone(), message.context.clone(), message.message.clone())
}
