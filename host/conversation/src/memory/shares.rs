//! The shares of the owners in a memory store. A full store drops tasks of the owner with the largest share.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use annex_protocol::TaskId;

use super::tasks::{Rest, TaskSlot};
use crate::key::Owner;

/// When a task was finished or began to wait, and the id of the task. In this order the oldest task comes first.
type RestingTask = (i64, TaskId);

/// The tasks of all owners, with the sums that decide which task is dropped.
#[derive(Default)]
pub(super) struct Shares {
    bytes: usize,
    /// The finished tasks by tenant, because retention limits their number per tenant.
    finished: HashMap<String, BTreeSet<RestingTask>>,
    by_owner: HashMap<Owner, Share>,
}

#[derive(Default)]
struct Share {
    tasks: usize,
    bytes: usize,
    /// The running tasks of the owner.
    running: RunningTasks,
    finished: BTreeSet<RestingTask>,
    waiting: BTreeSet<RestingTask>,
}

/// The number and bytes of tasks with a turn. Such tasks are never dropped.
#[derive(Clone, Copy, Default)]
pub(super) struct RunningTasks {
    pub(super) tasks: usize,
    pub(super) bytes: usize,
}

/// The bound that a full store has reached.
#[derive(Clone, Copy)]
pub(super) enum Shortage {
    Tasks,
    Bytes,
}

/// A request of an owner for room in the store.
#[derive(Clone, Copy)]
pub(super) struct RoomWanted<'a> {
    pub(super) owner: &'a Owner,
    pub(super) tasks: usize,
    pub(super) bytes: usize,
    /// The task that the room is for. It must not be dropped.
    pub(super) kept: Option<&'a TaskId>,
}

impl Shares {
    /// Adds a task with its present state and size to the sums.
    pub(super) fn add(&mut self, id: &TaskId, slot: &TaskSlot) {
        self.bytes += slot.bytes();
        let share = self.by_owner.entry(slot.key.owner().clone()).or_default();
        share.tasks += 1;
        share.bytes += slot.bytes();
        match slot.rest() {
            // A running task is in no set, because it is never dropped for others.
            Rest::Runs => {
                share.running.tasks += 1;
                share.running.bytes += slot.bytes();
            }
            Rest::Waits(since) => {
                share.waiting.insert((since, id.clone()));
            }
            Rest::Finished(since) => {
                share.finished.insert((since, id.clone()));
                let of_tenant = self.finished.entry(slot.key.owner().tenant.clone()).or_default();
                of_tenant.insert((since, id.clone()));
            }
        }
    }

    /// Removes a task from the sums. The task must not have changed since it was added.
    pub(super) fn remove(&mut self, id: &TaskId, slot: &TaskSlot) {
        self.bytes -= slot.bytes();
        let Some(share) = self.by_owner.get_mut(slot.key.owner()) else { return };
        share.tasks -= 1;
        share.bytes -= slot.bytes();
        match slot.rest() {
            Rest::Runs => {
                share.running.tasks -= 1;
                share.running.bytes -= slot.bytes();
            }
            Rest::Waits(since) => {
                share.waiting.remove(&(since, id.clone()));
            }
            Rest::Finished(since) => {
                let resting = (since, id.clone());
                share.finished.remove(&resting);
                if let Some(of_tenant) = self.finished.get_mut(&slot.key.owner().tenant) {
                    of_tenant.remove(&resting);
                    if of_tenant.is_empty() {
                        self.finished.remove(&slot.key.owner().tenant);
                    }
                }
            }
        }
        // Otherwise the map would keep a share for every caller that there ever was.
        if share.tasks == 0 {
            self.by_owner.remove(slot.key.owner());
        }
    }

    /// The number of tasks of a tenant.
    pub(super) fn tasks_of(&self, tenant: &str) -> usize {
        self.by_owner.iter().filter(|(owner, _)| owner.tenant == tenant).map(|(_, share)| share.tasks).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The finished tasks to delete: all tasks that ended before `before`, and for each tenant with more than `count` finished
    /// tasks the oldest ones.
    pub(super) fn finished_beyond(&self, before: i64, count: u64) -> Vec<TaskId> {
        self.finished.values().flat_map(|finished| beyond(finished, before, count)).collect()
    }

    /// The oldest finished tasks of a tenant. If they are deleted, `count` finished tasks of the tenant are left.
    pub(super) fn finished_surplus(&self, tenant: &str, count: u64) -> Vec<TaskId> {
        self.finished.get(tenant).into_iter().flat_map(|finished| beyond(finished, i64::MIN, count)).collect()
    }

    /// The number and bytes of the owner's tasks with a turn.
    pub(super) fn running(&self, owner: &Owner) -> RunningTasks {
        self.by_owner.get(owner).map(|share| share.running).unwrap_or_default()
    }

    /// The owner's waiting tasks, the oldest first.
    pub(super) fn waiting(&self, owner: &Owner) -> impl DoubleEndedIterator<Item = &RestingTask> + ExactSizeIterator {
        static NONE: BTreeSet<RestingTask> = BTreeSet::new();
        self.by_owner.get(owner).map_or(&NONE, |share| &share.waiting).iter()
    }

    /// All waiting tasks by their owners, in no order.
    pub(super) fn all_waiting(&self) -> impl Iterator<Item = (&Owner, &BTreeSet<RestingTask>)> {
        self.by_owner.iter().map(|(owner, share)| (owner, &share.waiting))
    }

    /// The next task to drop: the oldest finished task of the owner with the largest share. If no task is finished, the
    /// oldest waiting task.
    pub(super) fn victim(&self, measure: Shortage, wanted: RoomWanted<'_>) -> Option<TaskId> {
        let finished = self.oldest(measure, wanted, |share| &share.finished);
        finished.or_else(|| self.oldest(measure, wanted, |share| &share.waiting))
    }

    /// The oldest finished task, or the oldest waiting task, of the owner with the largest share. `resting` selects
    /// which of the two. Only owners whose share is at least as large as the share of the owner who needs room can lose
    /// a task. Scans all owners.
    fn oldest(
        &self,
        measure: Shortage,
        wanted: RoomWanted<'_>,
        resting: impl Fn(&Share) -> &BTreeSet<RestingTask>,
    ) -> Option<TaskId> {
        let own = self.by_owner.get(wanted.owner).map_or(0, |share| share.measured(measure));
        let own = own.saturating_add(match measure {
            Shortage::Tasks => wanted.tasks,
            Shortage::Bytes => wanted.bytes,
        });
        let shares = self.by_owner.iter().map(|(owner, share)| {
            let size = if owner == wanted.owner { own } else { share.measured(measure) };
            (size, share)
        });
        let large = shares.filter(|(size, _)| *size >= own);
        let oldest = large.filter_map(|(size, share)| {
            let oldest = resting(share).iter().find(|(_, id)| wanted.kept != Some(id))?;
            Some((size, Reverse(oldest)))
        });
        oldest.max().map(|(_, Reverse((_, id)))| id.clone())
    }
}

impl Share {
    fn measured(&self, measure: Shortage) -> usize {
        match measure {
            Shortage::Tasks => self.tasks,
            Shortage::Bytes => self.bytes,
        }
    }
}

/// The tasks among `finished` to delete: all tasks that ended before `before`, and the oldest tasks until at most `count` are
/// left.
fn beyond(finished: &BTreeSet<RestingTask>, before: i64, count: u64) -> impl Iterator<Item = TaskId> {
    let surplus = (finished.len() as u64).saturating_sub(count);
    let oldest = (0..).zip(finished).take_while(move |(place, (at, _))| *place < surplus || *at < before);
    oldest.map(|(_, (_, id))| id.clone())
}
