//! Which versions of its extensions a waiting task goes on with.
//!
//! A task that waits for its client remembers the versions that worked on it, and its next turn takes them in place of
//! those that are installed by then. Pins are as old as the process: after a restart, what is installed serves all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{ExtensionUri, TaskId};
use annex_runtime::{Extension, Installed};
use annex_tasks::Owner;
use lru::LruCache;

/// Tasks that may pin their versions; the one that was idle for longest loses its pins first.
const MAX_TASKS: usize = 10_000;
/// Replaced versions of one extension that tasks may keep alive.
const MAX_REPLACED: usize = 8;

/// The versions of waiting tasks.
pub struct Pins {
    state: Mutex<State>,
}

struct State {
    /// Counts interruptions, so that each has a number of its own.
    interruptions: u64,
    tasks: LruCache<TaskId, Pinned>,
    /// The installed extensions, by tenant. A turn may still run an extension that was removed; it does not pin it.
    installed: HashMap<String, Installed>,
}

struct Pinned {
    owner: Owner,
    extensions: Vec<Arc<Extension>>,
    /// With the number that tells this interruption from all others.
    interrupted: Option<(u64, Interrupted)>,
}

/// The reason why a task waits, when an extension made it wait.
#[derive(Clone, Debug)]
pub(crate) struct Interrupted {
    /// The extension, which alone may take the task up again.
    pub(crate) by: ExtensionUri,
    /// The extensions that the client asked for.
    pub(crate) requested: Vec<ExtensionUri>,
}

impl Default for Pins {
    fn default() -> Self {
        Self { state: Mutex::new(State { interruptions: 0, tasks: LruCache::unbounded(), installed: HashMap::new() }) }
    }
}

impl Pins {
    /// The task waits, and goes on with `extensions`. What it has pinned already stays.
    pub(crate) fn hold<'a>(
        &self,
        owner: &Owner,
        task: &TaskId,
        extensions: impl Iterator<Item = &'a Arc<Extension>>,
        interrupted: Option<Interrupted>,
    ) {
        let mut state = self.lock();
        let State { interruptions, tasks, installed } = &mut *state;
        *interruptions += 1;
        let interrupted = interrupted.map(|interrupted| (*interruptions, interrupted));
        let mut pinned = tasks.pop(task).map(|pinned| pinned.extensions).unwrap_or_default();
        for extension in extensions {
            // An extension that was removed while the turn ran must not live on in a pin.
            let installed = installed.get(&owner.tenant);
            let is_there = installed.is_some_and(|installed| installed.get(extension.uri()).is_some());
            if is_there && !pinned.iter().any(|other| other.uri() == extension.uri()) {
                pinned.push(Arc::clone(extension));
            }
        }
        if pinned.is_empty() {
            return;
        }
        tasks.push(task.clone(), Pinned { owner: owner.clone(), extensions: pinned, interrupted });
        if tasks.len() > MAX_TASKS
            && let Some((task, _)) = tasks.pop_lru()
        {
            tracing::warn!(target: crate::LOG_TARGET, %task, "too many tasks wait; this one goes on with what is installed then");
        }
    }

    /// The task will not go on.
    pub(crate) fn release(&self, task: &TaskId) {
        self.lock().tasks.pop(task);
    }

    /// The versions that the owner's task goes on with. Empty where it has pinned none.
    pub(crate) fn of(&self, owner: &Owner, task: &TaskId) -> Vec<Arc<Extension>> {
        let mut state = self.lock();
        let pinned = state.tasks.get(task).filter(|pinned| pinned.owner == *owner);
        pinned.map(|pinned| pinned.extensions.clone()).unwrap_or_default()
    }

    /// The owner of a task that `extension` of the tenant made wait, and the number of that interruption.
    pub(crate) fn interrupted(&self, tenant: &str, task: &TaskId, extension: &ExtensionUri) -> Option<(Owner, u64)> {
        let mut state = self.lock();
        let pinned = state.tasks.get(task).filter(|pinned| pinned.owner.tenant == tenant)?;
        let (number, _) = pinned.interrupted.as_ref().filter(|(_, interrupted)| interrupted.by == *extension)?;
        Some((pinned.owner.clone(), *number))
    }

    /// Ends an interruption, once: what the task's client had asked for. `None` when it is over already.
    pub(crate) fn end_interruption(&self, task: &TaskId, number: u64) -> Option<Vec<ExtensionUri>> {
        let mut state = self.lock();
        let pinned = state.tasks.get_mut(task)?;
        let (_, interrupted) = pinned.interrupted.take_if(|(other, _)| *other == number)?;
        Some(interrupted.requested)
    }

    /// The task goes on, whoever took it up. Its pins stay.
    pub(crate) fn go_on(&self, task: &TaskId) {
        if let Some(pinned) = self.lock().tasks.get_mut(task) {
            pinned.interrupted = None;
        }
    }

    /// The number of tasks that go on with this version.
    pub fn count(&self, extension: &Arc<Extension>) -> usize {
        let is_pinned = |pinned: &Pinned| pinned.extensions.iter().any(|other| Arc::ptr_eq(other, extension));
        self.lock().tasks.iter().filter(|(_, pinned)| is_pinned(pinned)).count()
    }

    /// The number of tasks that have pins.
    pub fn tasks(&self) -> usize {
        self.lock().tasks.len()
    }

    /// Learns what the tenant has installed now. Lets go of what was removed, and of the oldest versions where tasks
    /// keep too many alive.
    pub fn thin_out(&self, tenant: &str, installed: &Installed) {
        let mut replaced: HashMap<ExtensionUri, Vec<*const Extension>> = HashMap::new();
        let mut may_stay = |extension: &Arc<Extension>| {
            let Some(present) = installed.get(extension.uri()) else { return false };
            if Arc::ptr_eq(present, extension) {
                return true;
            }
            let versions = replaced.entry(extension.uri().clone()).or_default();
            let version = Arc::as_ptr(extension);
            if !versions.contains(&version) && versions.len() < MAX_REPLACED {
                versions.push(version);
            }
            versions.contains(&version)
        };
        let mut state = self.lock();
        // In one step with the pins, so that a turn which ends now cannot pin what was just removed.
        state.installed.insert(tenant.to_owned(), installed.clone());
        let mut empty = Vec::new();
        // The task that was busy last comes first.
        for (task, pinned) in state.tasks.iter_mut().filter(|(_, pinned)| pinned.owner.tenant == tenant) {
            let before = pinned.extensions.len();
            pinned.extensions.retain(&mut may_stay);
            if pinned.extensions.len() < before {
                tracing::info!(target: crate::LOG_TARGET, %task, "a waiting task has lost its version of an extension that is gone");
            }
            if pinned.extensions.is_empty() {
                empty.push(task.clone());
            }
        }
        for task in empty {
            state.tasks.pop(&task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
