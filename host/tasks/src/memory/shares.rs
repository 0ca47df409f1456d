//! What the owners have in a memory store, so that room is made at the expense of whoever has most.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use annex_protocol::TaskId;

use super::table::Entry;
use crate::Owner;

/// When a task finished, and which one it is: the oldest is the least.
type Finished = (i64, TaskId);

/// The tasks of all owners, counted.
#[derive(Default)]
pub(super) struct Shares {
    bytes: usize,
    finished: BTreeSet<Finished>,
    by_owner: HashMap<Owner, Share>,
}

#[derive(Default)]
struct Share {
    tasks: usize,
    bytes: usize,
    finished: BTreeSet<Finished>,
}

/// What there is too much of.
#[derive(Clone, Copy)]
pub(super) enum Measure {
    Tasks,
    Bytes,
}

/// What is to be stored.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) owner: &'a Owner,
    pub(super) tasks: usize,
    pub(super) bytes: usize,
    /// A task that it belongs to, which must not go for it.
    pub(super) kept: Option<&'a TaskId>,
}

impl Shares {
    /// Counts a task in, as it is.
    pub(super) fn add(&mut self, id: &TaskId, entry: &Entry) {
        self.bytes += entry.bytes();
        let share = self.by_owner.entry(entry.owner.clone()).or_default();
        share.tasks += 1;
        share.bytes += entry.bytes();
        if let Some(at) = entry.finished_at() {
            share.finished.insert((at, id.clone()));
            self.finished.insert((at, id.clone()));
        }
    }

    /// Takes it out, as it was counted in.
    pub(super) fn remove(&mut self, id: &TaskId, entry: &Entry) {
        self.bytes -= entry.bytes();
        let Some(share) = self.by_owner.get_mut(&entry.owner) else { return };
        share.tasks -= 1;
        share.bytes -= entry.bytes();
        if let Some(at) = entry.finished_at() {
            share.finished.remove(&(at, id.clone()));
            self.finished.remove(&(at, id.clone()));
        }
        if share.tasks == 0 {
            self.by_owner.remove(&entry.owner);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many tasks are finished, and the oldest of them.
    pub(super) fn finished(&self) -> (usize, Option<&Finished>) {
        (self.finished.len(), self.finished.first())
    }

    /// The finished task that goes next: the oldest of the owner that has most. Owners that have less than the one that
    /// wants room, with what it wants, lose nothing. Looks at every owner.
    pub(super) fn victim(&self, measure: Measure, wanted: Wanted<'_>) -> Option<TaskId> {
        let own = self.by_owner.get(wanted.owner).map_or(0, |share| share.measured(measure));
        let own = own.saturating_add(match measure {
            Measure::Tasks => wanted.tasks,
            Measure::Bytes => wanted.bytes,
        });
        let shares = self.by_owner.iter().map(|(owner, share)| {
            let size = if owner == wanted.owner { own } else { share.measured(measure) };
            (size, share)
        });
        let large = shares.filter(|(size, _)| *size >= own);
        let oldest = large.filter_map(|(size, share)| {
            let mut finished = share.finished.iter();
            let oldest = finished.find(|(_, id)| wanted.kept != Some(id))?;
            Some((size, Reverse(oldest)))
        });
        oldest.max().map(|(_, Reverse((_, id)))| id.clone())
    }
}

impl Share {
    fn measured(&self, measure: Measure) -> usize {
        match measure {
            Measure::Tasks => self.tasks,
            Measure::Bytes => self.bytes,
        }
    }
}
