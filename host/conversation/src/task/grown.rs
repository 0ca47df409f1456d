//! A large task: an older copy and the entries since then. The values are computed on first access.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_protocol::{ArtifactId, ContextId, StreamResponse, Task, TaskId, TaskState, Timestamp};

use super::{TaskSnapshot, apply};
use crate::entry::Entry;
use crate::limits::TaskSize;

/// A task that has grown by entries.
#[derive(Debug)]
pub(super) struct Grown {
    pub(super) id: TaskId,
    pub(super) context_id: ContextId,
    pub(super) state: TaskState,
    pub(super) status_at: Option<Timestamp>,
    pub(super) size: TaskSize,
    /// The whole task. It is made from `parts` on the first access.
    pub(super) whole: OnceLock<(Task, TaskSize)>,
    /// The parts from which the whole task is made. `None` after the first access.
    pub(super) parts: Mutex<Option<GrownParts>>,
}

/// An older copy of a task and the entries since then.
#[derive(Clone, Debug)]
pub(super) struct GrownParts {
    /// The older copy, whose values are computed already.
    base: TaskSnapshot,
    /// The entries after `base`. Later snapshots of the task add entries to the same list.
    log: Arc<Mutex<Vec<Entry>>>,
    /// The number of entries in `log` that belong to this snapshot.
    length: usize,
    /// The ids of all artifacts.
    pub(super) artifacts: Arc<BTreeSet<ArtifactId>>,
}

impl Grown {
    pub(super) fn task(&self) -> &Task {
        // `get_or_init` lets one thread assemble the task while others wait, so that each does not make a copy.
        let (task, _) = self.whole.get_or_init(|| {
            // The parts are dropped only when `whole` is set, so they exist here.
            let task = self.lock().as_ref().map(GrownParts::assembled).unwrap_or_default();
            let size = TaskSize::of(&task, self.size.logged);
            (task, size)
        });
        // The parts are not needed beside the whole task.
        self.lock().take();
        task
    }

    pub(super) fn into_task(self) -> Task {
        let whole = self.whole.into_inner().map(|(task, _)| task);
        let parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        whole.or_else(|| parts.as_ref().map(GrownParts::assembled)).unwrap_or_default()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<GrownParts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrownParts {
    /// Begins a large task with `base` and no further entries.
    pub(super) fn of(base: TaskSnapshot) -> Self {
        let artifacts = base.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
        Self { base, log: Arc::default(), length: 0, artifacts: Arc::new(artifacts) }
    }

    pub(super) fn assembled(&self) -> Task {
        let mut task = Task::clone(&self.base);
        self.log().iter().take(self.length).for_each(|entry| apply(&mut task, entry));
        task
    }

    pub(super) fn push(&mut self, entries: &[Entry]) {
        for id in entries.iter().filter_map(artifact) {
            // Clones share the set, and `make_mut` copies it. Most entries are further chunks of artifacts that are
            // known.
            if !self.artifacts.contains(id) {
                Arc::make_mut(&mut self.artifacts).insert(id.clone());
            }
        }
        let mut log = self.log();
        // Older snapshots share the log and look at their first `length` entries only, so it may grow at its end.
        let branch = if log.len() == self.length {
            log.extend_from_slice(entries);
            None
        } else {
            // Entries that others appended after this snapshot, or could not store, are not part of it.
            Some(log.iter().take(self.length).chain(entries).cloned().collect())
        };
        // The guard borrows `self.log`, which is replaced next.
        drop(log);
        if let Some(branch) = branch {
            self.log = Arc::new(Mutex::new(branch));
        }
        self.length += entries.len();
    }

    fn log(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the artifact that an entry brings.
fn artifact(entry: &Entry) -> Option<&ArtifactId> {
    match entry {
        Entry::Update(update) => match update.as_ref() {
            StreamResponse::ArtifactUpdate(update) => Some(&update.artifact.artifact_id),
            StreamResponse::StatusUpdate(_) | StreamResponse::Task(_) | StreamResponse::Message(_) => None,
        },
        Entry::Message(_) | Entry::Event(_) | Entry::Note(_) => None,
    }
}
