//! The queues of turns in memory. A queue exists only while a turn is in it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use annex_protocol::TaskId;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::slot_key::Prehashed;
use crate::fence::{Fence, Leases};
use crate::key::ConversationKey;
use crate::queue::{LostTurn, Submission};
use annex_leases::Replica;

/// The turns of one conversation, in order. Usually a queue has one turn.
type Queue = SmallVec<[TurnInQueue; 1]>;

#[derive(Default)]
pub(super) struct Queues {
    by_conversation: HashMap<ConversationKey, Queue, BuildHasherDefault<Prehashed>>,
    last_epoch: u64,
}

/// A turn that runs or waits.
pub(super) struct TurnInQueue {
    pub(super) fence: Fence,
    pub(super) submission: Submission,
    /// True once the message of the turn is accepted. That is when the turn has to wait, or at its first append.
    is_accepted: bool,
    /// True once the turn has appended.
    has_begun: bool,
    /// The number of attempts at the turn, counted as in [`LostTurn::attempts`].
    attempts: u32,
    pub(super) is_cancelled: bool,
    /// True if the process of the turn has handed the turn over to other processes.
    is_left: bool,
    /// True if the conversation of the turn was deleted while the turn ran.
    pub(super) is_orphan: bool,
    /// Fires when the turn may run, or when another process has taken the turn.
    moved: Option<Arc<Notify>>,
}

impl Queues {
    pub(super) fn turns(&self, key: &ConversationKey) -> impl ExactSizeIterator<Item = &TurnInQueue> {
        self.by_conversation.get(key).map(Queue::as_slice).unwrap_or_default().iter()
    }

    /// The number of turns of a tenant.
    pub(super) fn count(&self, tenant: &str) -> u64 {
        let of_tenant = self.by_conversation.iter().filter(|(key, _)| *key.tenant == *tenant);
        of_tenant.map(|(_, queue)| queue.len() as u64).sum()
    }

    pub(super) fn is_busy(&self, key: &ConversationKey) -> bool {
        self.by_conversation.contains_key(key)
    }

    /// The index of a turn in its queue; the running turn has 0.
    pub(super) fn index(&self, key: &ConversationKey, fence: &Fence) -> Option<usize> {
        self.turns(key).position(|turn| turn.fence == *fence)
    }

    pub(super) fn turn_mut(&mut self, key: &ConversationKey, fence: &Fence) -> Option<&mut TurnInQueue> {
        self.by_conversation.get_mut(key)?.iter_mut().find(|turn| turn.fence == *fence)
    }

    pub(super) fn turn_of_task(&mut self, key: &ConversationKey, task: &TaskId) -> Option<&mut TurnInQueue> {
        self.by_conversation.get_mut(key)?.iter_mut().find(|turn| turn.submission.task == *task)
    }

    /// Puts a turn at the end of a queue.
    pub(super) fn push(&mut self, key: &ConversationKey, submission: Submission) -> Fence {
        let fence = self.fence(&submission.replica);
        let queue = self.by_conversation.entry(key.clone()).or_default();
        let turn = TurnInQueue {
            fence: fence.clone(),
            submission,
            is_accepted: !queue.is_empty(),
            has_begun: false,
            attempts: 0,
            is_cancelled: false,
            is_left: false,
            is_orphan: false,
            moved: None,
        };
        queue.push(turn);
        fence
    }

    /// Removes a turn from its queue. If it was the running turn, the next turn runs.
    pub(super) fn remove(&mut self, key: &ConversationKey, index: usize) -> Option<TurnInQueue> {
        let queue = self.by_conversation.get_mut(key)?;
        let removed = (index < queue.len()).then(|| queue.remove(index));
        match queue.first() {
            // An empty queue is removed. Otherwise the map would grow with every context that a client names.
            None => drop(self.by_conversation.remove(key)),
            Some(first) if index == 0 => first.wake(),
            Some(_) => {}
        }
        removed
    }

    /// The signal that fires when the turn may run, or when another process has taken the turn.
    pub(super) fn moved(&mut self, key: &ConversationKey, fence: &Fence) -> Option<Arc<Notify>> {
        Some(Arc::clone(self.turn_mut(key, fence)?.moved.get_or_insert_default()))
    }

    /// Marks the running turn of a conversation that is being deleted, so that the turn does not create the
    /// conversation again.
    pub(super) fn orphan(&mut self, key: &ConversationKey) {
        if let Some(first) = self.by_conversation.get_mut(key).and_then(|queue| queue.first_mut()) {
            first.is_orphan = true;
        }
    }

    /// Hands a turn over to other processes.
    pub(super) fn hand_over(&mut self, key: &ConversationKey, fence: &Fence, has_begun: bool) {
        let left = self.fence(&fence.replica);
        if let Some(turn) = self.turn_mut(key, fence) {
            // A process with the old fence can write nothing more.
            (turn.fence, turn.is_left) = (left, true);
            if !has_begun {
                turn.attempts = turn.attempts.saturating_sub(1);
            }
        }
    }

    /// Takes a turn over for the process `by`, and gives the turn a new fence.
    pub(super) fn take(&mut self, key: &ConversationKey, from: &Fence, by: &Replica) -> Option<LostTurn> {
        let fence = self.fence(by);
        let turn = self.turn_mut(key, from)?;
        turn.wake();
        (turn.fence, turn.is_left, turn.moved) = (fence.clone(), false, None);
        let attempts = turn.attempts;
        // Counted before the turn begins: a turn that crashes every process must be given up at some point.
        turn.attempts += 1;
        Some(LostTurn {
            key: key.clone(),
            task: turn.submission.task.clone(),
            fence,
            resume: if turn.has_begun { &turn.submission.resume } else { &turn.submission.request }.clone(),
            has_begun: turn.has_begun,
            attempts,
            is_cancelled: turn.is_cancelled,
        })
    }

    /// The turns of dead processes and the turns that were handed over, in the order of their queues.
    pub(super) fn lost(&self, leases: &dyn Leases) -> Vec<(ConversationKey, Fence, bool)> {
        let all = self.by_conversation.iter().flat_map(|(key, queue)| queue.iter().map(move |turn| (key, turn)));
        let lost = all.filter(|(_, turn)| !turn.is_alive(leases));
        lost.map(|(key, turn)| (key.clone(), turn.fence.clone(), turn.is_accepted)).collect()
    }

    fn fence(&mut self, replica: &Replica) -> Fence {
        self.last_epoch += 1;
        Fence { replica: replica.clone(), epoch: self.last_epoch }
    }
}

impl TurnInQueue {
    /// True if a live process works on the turn.
    pub(super) fn is_alive(&self, leases: &dyn Leases) -> bool {
        !self.is_left && leases.is_alive(&self.fence.replica)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Marks the turn as begun and its message as accepted. Returns `true` if the message was accepted before.
    pub(super) fn accept(&mut self) -> bool {
        if !self.has_begun {
            (self.has_begun, self.attempts) = (true, 1);
        }
        std::mem::replace(&mut self.is_accepted, true)
    }

    fn wake(&self) {
        if let Some(moved) = &self.moved {
            // `Notify` keeps the signal for a turn that is about to wait.
            moved.notify_one();
        }
    }
}
