//! The pinned versions of the extensions of waiting tasks.
//!
//! A task that waits for its client pins the versions of extensions that worked on the task. The next turn of the task
//! uses these versions in place of newer ones. The store has the pins as digests (`task_pins.rs`). The versions
//! themselves exist only in this process; a process without a pinned version uses the installed one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use annex_protocol::{ExtensionUri, Owner, TaskId};
use annex_runtime::{Extension, Installed};
use lru::LruCache;
use uuid::Uuid;

use crate::tasks::task_pins::{Interruption, PinnedVersion, TaskPins};

/// The maximum number of tasks with pins. If more tasks have pins, the task that was idle for longest loses its pins.
const MAX_TASKS: usize = 10_000;
/// The maximum number of replaced versions of one extension that pins keep in memory.
const MAX_REPLACED: usize = 8;

/// The versions of extensions that waiting tasks have pinned.
pub struct Pins {
    state: Mutex<PinnedVersions>,
}

struct PinnedVersions {
    tasks: LruCache<TaskId, Pinned>,
    /// The installed extensions, by tenant. A turn may still run a removed extension, which is then not pinned.
    installed: HashMap<String, Installed>,
    /// The installed extensions and earlier versions that are still in memory, by tenant.
    seen: HashMap<String, Vec<Weak<Extension>>>,
}

struct Pinned {
    owner: Owner,
    extensions: Vec<Arc<Extension>>,
    /// The pins as they are stored with the task.
    text: Arc<str>,
}

impl Default for Pins {
    fn default() -> Self {
        let state = PinnedVersions { tasks: LruCache::unbounded(), installed: HashMap::new(), seen: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Pins {
    /// Pins the versions in `extensions` for a task that begins to wait. Existing pins stay. `interrupted` has the
    /// extension that interrupted the task, and the URIs that the client had requested. Returns the text to store;
    /// `None` if nothing is pinned.
    pub(crate) fn hold<'a>(
        &self,
        owner: &Owner,
        task: &TaskId,
        extensions: impl Iterator<Item = &'a Arc<Extension>>,
        interrupted: Option<(ExtensionUri, Vec<ExtensionUri>)>,
    ) -> Option<Arc<str>> {
        let interruption = interrupted.map(|(by, requested)| Interruption { by, requested, number: new_number() });
        let mut state = self.lock();
        let PinnedVersions { tasks, installed, .. } = &mut *state;
        let mut pinned = tasks.pop(task).map(|pinned| pinned.extensions).unwrap_or_default();
        for extension in extensions {
            // An extension that was removed during the turn must not be kept by a pin.
            let installed = installed.get(&owner.tenant);
            let is_there = installed.is_some_and(|installed| installed.get(extension.uri()).is_some());
            if is_there && !pinned.iter().any(|other| other.uri() == extension.uri()) {
                pinned.push(Arc::clone(extension));
            }
        }
        if pinned.is_empty() {
            return None;
        }
        let text = TaskPins { versions: pinned.iter().map(version_of).collect(), interruption }.text();
        state.put(task, Pinned { owner: owner.clone(), extensions: pinned, text: Arc::clone(&text) });
        Some(text)
    }

    /// The versions that the stored pins in `text` name for the owner's task, except versions that this process does
    /// not have.
    pub(crate) fn of(&self, owner: &Owner, task: &TaskId, text: &Arc<str>) -> Vec<Arc<Extension>> {
        let mut state = self.lock();
        if let Some(pinned) = state.tasks.get(task).filter(|pinned| pinned.text == *text) {
            return pinned.extensions.clone();
        }
        let seen = state.seen.get(&owner.tenant).map_or(&[][..], Vec::as_slice);
        let installed = state.installed.get(&owner.tenant);
        let there = |version: &PinnedVersion| {
            installed?.get(&version.uri)?;
            seen.iter().filter_map(Weak::upgrade).find(|extension| version_of(extension) == *version)
        };
        let extensions: Vec<_> = TaskPins::parse(text).versions.iter().filter_map(there).collect();
        if extensions.is_empty() {
            state.tasks.pop(task);
        } else {
            let pinned = Pinned { owner: owner.clone(), extensions: extensions.clone(), text: Arc::clone(text) };
            state.put(task, pinned);
        }
        extensions
    }

    /// Removes the pins of a task that will not continue.
    pub(crate) fn release(&self, task: &TaskId) {
        self.lock().tasks.pop(task);
    }

    /// The number of tasks that have pinned this version.
    pub fn count(&self, extension: &Arc<Extension>) -> usize {
        let is_pinned = |pinned: &Pinned| pinned.extensions.iter().any(|other| Arc::ptr_eq(other, extension));
        self.lock().tasks.iter().filter(|(_, pinned)| is_pinned(pinned)).count()
    }

    /// The number of tasks that have pins.
    pub fn tasks(&self) -> usize {
        self.lock().tasks.len()
    }

    /// Records the tenant's installed extensions. Removes the pins of extensions that are no longer installed. If the pins keep
    /// too many replaced versions of an extension, the pins of the tasks that were idle for longest are removed.
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
        // Updated under the same lock as the pins, so that a turn that ends now cannot pin a removed extension.
        state.installed.insert(tenant.to_owned(), installed.clone());
        let seen = state.seen.entry(tenant.to_owned()).or_default();
        seen.retain(|version| version.strong_count() > 0);
        for extension in installed.iter() {
            if !seen.iter().any(|version| version.as_ptr() == Arc::as_ptr(extension)) {
                seen.push(Arc::downgrade(extension));
            }
        }
        let mut empty = Vec::new();
        // The most recently used task comes first.
        for (task, pinned) in state.tasks.iter_mut().filter(|(_, pinned)| pinned.owner.tenant == tenant) {
            let before = pinned.extensions.len();
            pinned.extensions.retain(&mut may_stay);
            if pinned.extensions.len() < before {
                tracing::info!(target: crate::LOG_TARGET, %task, "a waiting task has lost its pinned version of an extension");
            }
            if pinned.extensions.is_empty() {
                empty.push(task.clone());
            }
        }
        for task in empty {
            state.tasks.pop(&task);
        }
    }

    /// Drops the versions of a tenant that is no longer served here. Versions that its waiting tasks have pinned stay.
    pub fn leave(&self, tenant: &str) {
        let mut state = self.lock();
        state.installed.remove(tenant);
        state.seen.remove(tenant);
    }

    fn lock(&self) -> MutexGuard<'_, PinnedVersions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PinnedVersions {
    fn put(&mut self, task: &TaskId, pinned: Pinned) {
        self.tasks.push(task.clone(), pinned);
        if self.tasks.len() > MAX_TASKS
            && let Some((task, _)) = self.tasks.pop_lru()
        {
            tracing::warn!(target: crate::LOG_TARGET, %task, "too many waiting tasks have pinned versions; this one will continue with the installed versions");
        }
    }
}

fn version_of(extension: &Arc<Extension>) -> PinnedVersion {
    let uri = extension.uri().clone();
    PinnedVersion { uri, digest: extension.digest().to_string(), settings: extension.settings().to_string() }
}

/// A random number for an interruption, within the range of the database's integers.
fn new_number() -> u64 {
    Uuid::new_v4().as_u64_pair().0 >> 1
}
