//! Which versions of its extensions a waiting task goes on with.
//!
//! A task that waits for its client remembers the versions that worked on it, and its next turn takes them in place of
//! those that are installed by then. What is here is as old as the process. A store may keep pins for other processes
//! (`stored_pins.rs`), as digests: a process that has another version serves with what it has installed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use annex_protocol::{ExtensionUri, Owner, TaskId};
use annex_runtime::{Extension, Installed};
use annex_tasks::{Interruption, PinnedVersion, TaskPins};
use lru::LruCache;
use uuid::Uuid;

/// Tasks that may pin their versions; the one that was idle for longest loses its pins first.
const MAX_TASKS: usize = 10_000;
/// Replaced versions of one extension that tasks may keep alive.
const MAX_REPLACED: usize = 8;

/// The versions of waiting tasks.
pub struct Pins {
    state: Mutex<State>,
}

struct State {
    tasks: LruCache<TaskId, Pinned>,
    /// The installed extensions, by tenant. A turn may still run an extension that was removed; it does not pin it.
    installed: HashMap<String, Installed>,
    /// Those and the versions before them, by tenant, for as long as somebody keeps them.
    seen: HashMap<String, Vec<Weak<Extension>>>,
}

struct Pinned {
    owner: Owner,
    extensions: Vec<Arc<Extension>>,
    interruption: Option<Interruption>,
}

impl Default for Pins {
    fn default() -> Self {
        let state = State { tasks: LruCache::unbounded(), installed: HashMap::new(), seen: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Pins {
    /// The task waits, and goes on with `extensions`. What it has pinned already stays. `interrupted` names the extension
    /// that made it wait, and those that the client had asked for. Returns what is to be stored; `None` where nothing is
    /// pinned.
    pub(crate) fn hold<'a>(
        &self,
        owner: &Owner,
        task: &TaskId,
        extensions: impl Iterator<Item = &'a Arc<Extension>>,
        interrupted: Option<(ExtensionUri, Vec<ExtensionUri>)>,
    ) -> Option<TaskPins> {
        let interruption = interrupted.map(|(by, requested)| Interruption { by, requested, number: new_number() });
        let mut state = self.lock();
        let State { tasks, installed, .. } = &mut *state;
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
            return None;
        }
        let held = TaskPins { versions: pinned.iter().map(version_of).collect(), interruption: interruption.clone() };
        state.put(task, Pinned { owner: owner.clone(), extensions: pinned, interruption });
        Some(held)
    }

    /// Takes over what another process has let the task wait with, as far as it is here.
    pub(crate) fn restore(&self, owner: &Owner, task: &TaskId, stored: &TaskPins) {
        let mut state = self.lock();
        let seen = state.seen.get(&owner.tenant).map_or(&[][..], Vec::as_slice);
        let installed = state.installed.get(&owner.tenant);
        let there = |version: &PinnedVersion| {
            installed?.get(&version.uri)?;
            seen.iter().filter_map(Weak::upgrade).find(|extension| version_of(extension) == *version)
        };
        let extensions: Vec<_> = stored.versions.iter().filter_map(there).collect();
        let interruption = stored.interruption.clone();
        if extensions.is_empty() && interruption.is_none() {
            state.tasks.pop(task);
        } else {
            state.put(task, Pinned { owner: owner.clone(), extensions, interruption });
        }
    }

    /// True if the tenant has extensions.
    pub(crate) fn has_installed(&self, tenant: &str) -> bool {
        self.lock().installed.get(tenant).is_some_and(|installed| installed.iter().next().is_some())
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

    /// The owner of the task, and its interruption if an extension made it wait.
    pub(crate) fn interruption(&self, task: &TaskId) -> Option<(Owner, Option<Interruption>)> {
        let mut state = self.lock();
        let pinned = state.tasks.get(task)?;
        Some((pinned.owner.clone(), pinned.interruption.clone()))
    }

    /// Ends the interruption of the task, and returns it; `None` when there is none any more.
    pub(crate) fn end_interruption(&self, task: &TaskId) -> Option<Interruption> {
        self.lock().tasks.get_mut(task)?.interruption.take()
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
        let seen = state.seen.entry(tenant.to_owned()).or_default();
        seen.retain(|version| version.strong_count() > 0);
        for extension in installed.iter() {
            if !seen.iter().any(|version| version.as_ptr() == Arc::as_ptr(extension)) {
                seen.push(Arc::downgrade(extension));
            }
        }
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

    /// The tenant is not served here any more, and its versions need not stay in memory. What its waiting tasks go on with does.
    pub fn leave(&self, tenant: &str) {
        let mut state = self.lock();
        state.installed.remove(tenant);
        state.seen.remove(tenant);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, task: &TaskId, pinned: Pinned) {
        self.tasks.push(task.clone(), pinned);
        if self.tasks.len() > MAX_TASKS
            && let Some((task, _)) = self.tasks.pop_lru()
        {
            tracing::warn!(target: crate::LOG_TARGET, %task, "too many tasks wait; this one goes on with what is installed then");
        }
    }
}

fn version_of(extension: &Arc<Extension>) -> PinnedVersion {
    let uri = extension.uri().clone();
    PinnedVersion { uri, digest: extension.digest().to_string(), settings: extension.settings().to_string() }
}

/// A number that no other interruption has, as large as a database has them.
fn new_number() -> u64 {
    Uuid::new_v4().as_u64_pair().0 >> 1
}
