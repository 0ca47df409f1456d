//! The content of a memory store, and the changes that touch several of its parts.
//!
//! A change in memory cannot be rolled back, so each change runs all checks first.

use annex_protocol::{Message, TaskId};

use super::bounds::MemoryBounds;
use super::claims::Claims;
use super::conversations::Conversations;
use super::queues::{Queues, TurnInQueue};
use super::shares::RoomWanted;
use super::slot::Slot;
use super::tasks::{Consequences, TaskChange, Tasks};
use crate::claim::MessageKey;
use crate::entry::{Entry, combined};
use crate::error::{AppendError, StoreError};
use crate::fence::{Fence, Leases};
use crate::history::{ConversationSnapshot, Window};
use crate::key::{ConversationKey, check_name};
use crate::queue::{Departure, Entrance, LostTurn, Submission, TurnOfTask};
use crate::retention::{Retention, Swept};
use crate::store::{Append, Appended, Outcome, Position};
use crate::task::TaskSnapshot;
use annex_leases::Replica;

pub(super) struct Contents {
    pub(super) conversations: Conversations,
    pub(super) tasks: Tasks,
    pub(super) claims: Claims,
    pub(super) queues: Queues,
}

impl Contents {
    pub(super) fn new(bounds: &MemoryBounds) -> Self {
        Self {
            conversations: Conversations::new(bounds),
            tasks: Tasks::new(bounds),
            claims: Claims::new(bounds.max_tasks.saturating_mul(4), bounds.max_task_bytes / 4),
            queues: Queues::default(),
        }
    }

    /// Reads a conversation and marks the conversation as used.
    pub(super) fn read(&mut self, key: &ConversationKey, window: Window) -> ConversationSnapshot {
        self.conversations.touch(key);
        self.conversations.read(key, window)
    }

    /// Removes the least recently used slots until the store is within its bounds. Returns the slots, which the caller
    /// frees.
    pub(super) fn evict(&mut self) -> Vec<Slot> {
        self.conversations.evict(|key| self.queues.is_busy(key))
    }

    pub(super) fn enter(
        &mut self,
        key: &ConversationKey,
        submission: Submission,
        (window, leases): (Window, &dyn Leases),
    ) -> Result<Entrance, AppendError> {
        let task = &submission.task;
        let is_worked_on = self.queues.turns(key).any(|turn| turn.submission.task == *task);
        if is_worked_on || !leases.is_alive(&submission.replica) {
            return Err(AppendError::Fenced);
        }
        let stored = self.tasks.get(task);
        if stored.is_some_and(|slot| slot.key != *key) {
            return Err(AppendError::Missing);
        }
        let before = self.queues.turns(key).len();
        // The running turn is in the queue too, but does not wait.
        if before > submission.max_waiting {
            return Err(AppendError::QueueFull { waiting: submission.max_waiting });
        }
        if stored.is_some() {
            self.tasks.set_worked_on(task, true);
        } else if before > 0 {
            let submitted = TaskSnapshot::submitted(task.clone(), key.context.clone(), submission.since);
            let change = TaskChange { key, entries: &[], task: &submitted, is_worked_on: true };
            let consequences = self.tasks.store(task, &change)?;
            self.follow(&consequences);
        }
        if before > 0
            && let Some(message) = &submission.message
        {
            self.claims.accept(key.owner(), message);
        }
        let fence = self.queues.push(key, submission);
        Ok(match before {
            0 => Entrance::Runs(fence, Box::new(self.read(key, window))),
            _ => Entrance::Waits(fence),
        })
    }

    pub(super) fn leave(&mut self, key: &ConversationKey, fence: &Fence, departure: Departure) {
        let Some(index) = self.queues.index(key, fence) else { return };
        let has_begun = self.queues.turns(key).nth(index).is_some_and(TurnInQueue::has_begun);
        match departure.of_turn(has_begun) {
            Departure::HandedOver { has_begun } => self.queues.hand_over(key, fence, has_begun),
            Departure::Refused => self.forget_turn(key, index),
        }
    }

    /// Removes a turn from its queue, and its task if the task was stored only for this turn.
    fn forget_turn(&mut self, key: &ConversationKey, index: usize) {
        let Some(turn) = self.queues.remove(key, index) else { return };
        let task = &turn.submission.task;
        match self.tasks.number(task) {
            // The task was stored only because its turn had to wait.
            0 => self.remove_task(task),
            _ => self.tasks.set_worked_on(task, false),
        }
    }

    pub(super) fn append(
        &mut self,
        key: &ConversationKey,
        at: &Position,
        append: Append<'_>,
        leases: &dyn Leases,
    ) -> Result<Appended, AppendError> {
        let says = append.entries.iter().any(|entry| entry.event().is_some());
        let index = self.check_writer(key, at, (&append, says), leases)?;
        self.check_position(key, at)?;
        if index.is_none() && at.number == 0 {
            // The names of a turn were checked when the turn entered.
            key.check()?;
            if let Some(task) = &at.task {
                check_name("task id", task.as_str())?;
            }
        }
        self.check_entries(key, append.entries)?;
        let answer = match append.outcome {
            Outcome::Answer(answer) => {
                let json = serde_json::to_string(answer).map_err(StoreError::from)?;
                Some((answer, json.len()))
            }
            Outcome::Task | Outcome::Refusal => None,
        };
        let consequences = match (&at.task, append.outcome) {
            (Some(id), Outcome::Answer(_)) => {
                // The message of the task stays known, because it was answered.
                self.tasks.remove(id);
                Consequences::default()
            }
            (Some(id), Outcome::Refusal) => {
                self.remove_task(id);
                Consequences::default()
            }
            (Some(id), Outcome::Task) => {
                let task = append.task.ok_or(AppendError::Missing)?;
                let is_worked_on = index.is_some() && !append.ends;
                let change = TaskChange { key, entries: append.entries, task, is_worked_on };
                self.tasks.store(id, &change)?
            }
            (None, _) => Consequences::default(),
        };
        self.follow(&consequences);
        self.conversations.store(key, append.entries);
        if let Some(fence) = append.by {
            self.settle(key, fence, (append.ends, answer));
        }
        let number = match &at.task {
            Some(_) => at.number.saturating_add(append.entries.len() as u64),
            None => self.conversations.number(key),
        };
        Ok(Appended { number, displaced: consequences.displaced, surplus: consequences.surplus })
    }

    /// Checks that the writer has the right to write. Returns the index of its turn in the queue.
    fn check_writer(
        &self,
        key: &ConversationKey,
        at: &Position,
        (append, says): (&Append<'_>, bool),
        leases: &dyn Leases,
    ) -> Result<Option<usize>, AppendError> {
        let Some(fence) = append.by else {
            let is_others = match &at.task {
                Some(task) if !says => self.queues.turns(key).any(|turn| turn.submission.task == *task),
                _ => self.queues.is_busy(key),
            };
            return if is_others { Err(AppendError::Fenced) } else { Ok(None) };
        };
        let mut turns = self.queues.turns(key).enumerate();
        let (index, turn) = turns.find(|(_, turn)| turn.fence == *fence).ok_or(AppendError::Fenced)?;
        let is_first = index == 0 || (append.ends && !says);
        let is_its_task = at.task.as_ref() == Some(&turn.submission.task);
        if !is_first || !is_its_task || !leases.is_alive(&fence.replica) {
            return Err(AppendError::Fenced);
        }
        if turn.is_orphan && says {
            return Err(AppendError::Missing);
        }
        Ok(Some(index))
    }

    fn check_position(&self, key: &ConversationKey, at: &Position) -> Result<(), AppendError> {
        let found = match &at.task {
            Some(id) => match self.tasks.get(id) {
                Some(slot) if slot.key != *key => return Err(AppendError::Missing),
                Some(_) => self.tasks.number(id),
                None if at.number > 0 => return Err(AppendError::Missing),
                None => 0,
            },
            None => self.conversations.number(key),
        };
        match (at.number, found) {
            (expected, found) if expected == found => Ok(()),
            (_, 0) => Err(AppendError::Missing),
            (expected, found) => Err(AppendError::Stale { expected, found }),
        }
    }

    fn check_entries(&self, key: &ConversationKey, entries: &[Entry]) -> Result<(), AppendError> {
        for event in entries.iter().filter_map(Entry::event) {
            self.conversations.limits().check_event(event)?;
        }
        self.conversations.check(key, &combined(entries.iter()))
    }

    /// Marks the message of a turn as accepted after an append of the turn. If the turn ends, it leaves the queue.
    fn settle(&mut self, key: &ConversationKey, fence: &Fence, (ends, answer): (bool, Option<(&Message, usize)>)) {
        let Some(turn) = self.queues.turn_mut(key, fence) else { return };
        let is_accepted = turn.accept();
        let message = turn.submission.message.clone().filter(|_| !is_accepted || answer.is_some());
        if let Some(message) = message {
            self.claims.accept(key.owner(), &message);
            if let Some(answer) = answer {
                self.keep_answer(key, &message, answer);
            }
        }
        if ends && let Some(index) = self.queues.index(key, fence) {
            self.queues.remove(key, index);
        }
    }

    /// Keeps the answer to a message, if the store has room.
    fn keep_answer(&mut self, key: &ConversationKey, message: &MessageKey, (answer, bytes): (&Message, usize)) {
        let wanted = RoomWanted { owner: key.owner(), tasks: 0, bytes, kept: None };
        let mut consequences = Consequences::default();
        if self.claims.make_room(bytes) && self.tasks.make_room(wanted, &mut consequences).is_ok() {
            self.claims.answer(key.owner(), message, (answer, bytes));
        }
        self.tasks.answer_bytes = self.claims.answer_bytes();
        self.follow(&consequences);
    }

    pub(super) fn cancel(&mut self, task: &TaskId, leases: &dyn Leases) -> Option<TurnOfTask> {
        let key = self.tasks.get(task)?.key.clone();
        let turn = self.queues.turn_of_task(&key, task)?;
        turn.is_cancelled = true;
        Some(TurnOfTask { fence: turn.fence.clone(), is_alive: turn.is_alive(leases) })
    }

    pub(super) fn is_to_stop(&mut self, task: &TaskId, fence: &Fence) -> bool {
        // Nobody else knows a task that is not stored yet.
        let Some(key) = self.tasks.get(task).map(|slot| slot.key.clone()) else { return false };
        self.queues.turn_of_task(&key, task).is_none_or(|turn| turn.fence != *fence || turn.is_cancelled)
    }

    pub(super) fn take(
        &mut self,
        task: &TaskId,
        from: &Fence,
        (by, leases): (&Replica, &dyn Leases),
    ) -> Option<LostTurn> {
        let key = self.tasks.get(task)?.key.clone();
        if leases.is_alive(by) { self.queues.take(&key, from, by) } else { None }
    }

    pub(super) fn take_lost(&mut self, (by, limit): (&Replica, usize), leases: &dyn Leases) -> Vec<LostTurn> {
        if !leases.is_alive(by) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for (key, fence, is_accepted) in self.queues.lost(leases) {
            if taken.len() == limit {
                break;
            }
            if is_accepted {
                taken.extend(self.queues.take(&key, &fence, by));
            } else if let Some(index) = self.queues.index(&key, &fence) {
                // The client of this turn got no promise, and sends the message again.
                self.forget_turn(&key, index);
            }
        }
        taken
    }

    pub(super) fn sweep(&mut self, retention: &Retention, now: i64) -> Swept {
        let queues = &self.queues;
        let conversations = self.conversations.sweep(&retention.conversations, |key| queues.is_busy(key));
        let tasks = self.tasks.sweep(&retention.tasks, now);
        tasks.iter().for_each(|task| self.claims.forget_task(task));
        self.claims.sweep_answers(&retention.tasks, now);
        let stored = &self.tasks;
        self.claims.sweep_unanswered(retention.claimed_before(now), |task| !stored.has(task));
        self.tasks.answer_bytes = self.claims.answer_bytes();
        Swept { conversations, tasks: tasks.len() as u64, overdue: Vec::new() }
    }

    pub(super) fn sweep_tenant(&mut self, tenant: &str, count: u64) -> u64 {
        let tasks = self.tasks.sweep_tenant(tenant, count);
        tasks.iter().for_each(|task| self.claims.forget_task(task));
        tasks.len() as u64
    }

    /// Deletes the claims of tasks that were dropped. A repeated message would otherwise be answered with a deleted
    /// task.
    fn follow(&mut self, consequences: &Consequences) {
        consequences.dropped.iter().for_each(|task| self.claims.forget_task(task));
    }

    fn remove_task(&mut self, task: &TaskId) {
        self.tasks.remove(task);
        self.claims.forget_task(task);
    }
}
