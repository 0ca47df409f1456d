//! The components that must not run: the file `trust.deny_file`, and all loaded components that it may name.
//!
//! A component on the list is refused before it is compiled. A component that is loaded already is out of service for as
//! long as the list has its digest or the digest of its manifest: installed versions of all tenants, kept versions,
//! versions of waiting tasks, and shadows. The file is read again after each change. A file that cannot be used leaves
//! the last good list in force.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

use annex_files::Purpose;
use annex_registry::{Reference, is_reference};
use annex_runtime::Extension;
use annex_telemetry::fault;
use annex_trust::{DenyList, DenyListError};

use super::file_identity::FileIdentity;
use crate::lock::{Lock, LockError};

/// Maximum size of the file in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The interval at which the identity of the file is compared.
const LOOK: Duration = Duration::from_millis(250);
/// The least number of entries in the table of loaded components before the entries of dropped components are removed.
const MIN_ENTRIES: usize = 64;

/// The reasons why a deny file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DenyFileError {
    /// The file cannot be read.
    #[error("cannot read {}; to deny nothing, use an empty file", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The file is no deny list.
    #[error("cannot use {}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The reason, with the line.
        #[source]
        source: DenyListError,
    },
    /// The file cannot be watched.
    #[error("cannot start the thread that watches {}", path.display())]
    Watch {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// Reads a deny file.
pub(crate) fn read(path: &Path) -> Result<DenyList, DenyFileError> {
    let unreadable = |source| DenyFileError::Read { path: path.to_owned(), source };
    let text = annex_files::read_text(path, Purpose::Named, MAX_BYTES).map_err(unreadable)?;
    DenyList::parse(&text).map_err(|source| DenyFileError::List { path: path.to_owned(), source })
}

/// The digest of the manifest with which `annex.lock` in `folder` has a component. `None` if the config names a file, or if
/// the reference stands for another component.
pub(crate) fn manifest(folder: &Path, reference: &str, component: &str) -> Result<Option<String>, LockError> {
    if !is_reference(reference) {
        return Ok(None);
    }
    // A text that is no reference is an error of the load.
    let Ok(reference) = reference.parse::<Reference>() else { return Ok(None) };
    let lock = Lock::read(folder)?.unwrap_or_default();
    let locked = lock.find(&reference).filter(|locked| locked.component.as_str() == component);
    Ok(locked.map(|locked| locked.manifest.to_string()))
}

/// Why a component must not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The list has the digest of the component.
    Component(String),
    /// The list has the digest of the manifest of the component.
    Manifest(String),
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component(digest) => write!(formatter, "the operator denies its component {digest}"),
            Self::Manifest(digest) => write!(formatter, "the operator denies its manifest {digest}"),
        }
    }
}

/// The components that must not run, and the loaded components of the process. Without a deny file no component is
/// denied.
#[derive(Default)]
pub(crate) struct DeniedComponents {
    state: Mutex<DenyState>,
}

#[derive(Default)]
struct DenyState {
    /// The last good list, and the digests of a changed file that may not be complete yet.
    list: DenyList,
    loaded: Vec<LoadedComponent>,
    /// The length of `loaded` at which the entries of dropped components are removed.
    prune_at: usize,
}

/// A component that was loaded. The entry does not keep the component in memory.
#[derive(Clone)]
struct LoadedComponent {
    extension: Weak<Extension>,
    /// The digest of the manifest. `None` for a component that has no reference.
    manifest: Option<String>,
}

impl DeniedComponents {
    /// Reads the file. Later changes of the file have no effect.
    pub(crate) fn read(path: &Path) -> Result<Self, DenyFileError> {
        let state = DenyState { list: read(path)?, ..DenyState::default() };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Reads the file, and reads it again after each change until all parts of the server are dropped.
    pub(crate) fn watch(path: &Path) -> Result<Arc<Self>, DenyFileError> {
        // The identity is older than the content, so a change in between is noticed.
        let mut file = DenyFile::new(path);
        let denied = Arc::new(Self::read(path)?);
        let watched = Arc::downgrade(&denied);
        // The thread is not one of those that serve requests, so a file system that hangs delays none of them.
        let looking = move || {
            loop {
                thread::sleep(LOOK);
                let Some(denied) = watched.upgrade() else { return };
                file.look(&denied);
            }
        };
        let started = thread::Builder::new().name("annex-deny".to_owned()).spawn(looking);
        started.map_err(|source| DenyFileError::Watch { path: path.to_owned(), source })?;
        Ok(denied)
    }

    /// The reason why a component must not run. `None` if it may. `manifest` is the digest of its manifest, if it has
    /// one.
    pub(crate) fn denial(&self, component: &str, manifest: Option<&str>) -> Option<Denial> {
        self.lock().denial(component, manifest)
    }

    /// Adds a component that was just loaded. If the list has changed since the check before the load, and denies the
    /// component now, the component is out of service at once.
    pub(crate) fn add(&self, extension: &Arc<Extension>, manifest: Option<String>) {
        let mut state = self.lock();
        if state.loaded.len() >= state.prune_at {
            state.loaded.retain(|loaded| loaded.extension.strong_count() > 0);
            state.prune_at = state.loaded.len().saturating_mul(2).max(MIN_ENTRIES);
        }
        if let Some(denial) = state.denial(&extension.digest().to_string(), manifest.as_deref()) {
            extension.revoke(&denial.to_string());
        }
        state.loaded.push(LoadedComponent { extension: Arc::downgrade(extension), manifest });
    }

    /// Denies the digests of `list` in addition to those that are denied now.
    fn extend(&self, list: DenyList) {
        self.change(|state| state.list.merge(list));
    }

    /// Denies the digests of `list`, and no others.
    fn replace(&self, list: DenyList) {
        self.change(|state| state.list = list);
    }

    /// Changes the list, and takes all loaded components out of service or back into it. Only the thread that watches
    /// the file calls this, so there is one change at a time.
    fn change(&self, change: impl FnOnce(&mut DenyState)) {
        let loaded = {
            let mut state = self.lock();
            change(&mut state);
            state.loaded.clone()
        };
        for LoadedComponent { extension, manifest } in loaded {
            let Some(extension) = extension.upgrade() else { continue };
            match self.denial(&extension.digest().to_string(), manifest.as_deref()) {
                Some(denial) => extension.revoke(&denial.to_string()),
                None => extension.reinstate(),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, DenyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DenyState {
    fn denial(&self, component: &str, manifest: Option<&str>) -> Option<Denial> {
        if self.list.contains(component) {
            return Some(Denial::Component(component.to_owned()));
        }
        let manifest = manifest.filter(|digest| self.list.contains(digest))?;
        Some(Denial::Manifest(manifest.to_owned()))
    }
}

/// The deny file as it was when it was last looked at.
struct DenyFile {
    path: PathBuf,
    identity: Option<FileIdentity>,
    /// False if the file has to be read at the next look, although its identity is the same.
    is_read: bool,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

impl DenyFile {
    fn new(path: &Path) -> Self {
        // The file is read once more at the first look: a change right after the first read may leave the identity as it
        // was, because the times in it are those of the kernel's clock ticks.
        Self { path: path.to_owned(), identity: FileIdentity::of(path), is_read: false, failure: None }
    }

    /// Reads the file if it has changed. Digests that are new in the file are denied at once. Digests that are gone are
    /// denied until the file has stayed the same for one interval, because programs write a file in several steps.
    fn look(&mut self, denied: &DeniedComponents) {
        let identity = FileIdentity::of(&self.path);
        let has_changed = identity != self.identity;
        if self.is_read && !has_changed {
            return;
        }
        self.identity = identity;
        self.is_read = !has_changed;
        match read(&self.path) {
            Ok(list) if has_changed => denied.extend(list),
            Ok(list) => {
                if self.failure.take().is_some() {
                    tracing::info!("the deny file is in force as it is now: {}", self.path.display());
                }
                denied.replace(list);
            }
            // The program that writes the file may not be done.
            Err(_) if has_changed => {}
            Err(error) => {
                // A file that could not be read is tried again, because not each cause changes its identity.
                self.is_read = matches!(error, DenyFileError::List { .. });
                self.fail(fault::text(&error));
            }
        }
    }

    fn fail(&mut self, reason: String) {
        if self.failure.as_ref() != Some(&reason) {
            tracing::warn!("trust.deny_file: {reason}; the last good list stays in force");
        }
        self.failure = Some(reason);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Denial, DeniedComponents, DenyFile, DenyFileError, manifest, read};
    use crate::lock::{Lock, LockedComponent};

    fn digest(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    /// The digests of `1`, `2` and `3` that are denied.
    fn denies(denied: &DeniedComponents) -> String {
        ['1', '2', '3'].into_iter().filter(|digit| denied.denial(&digest(*digit), None).is_some()).collect()
    }

    #[test]
    fn new_digests_are_denied_at_once_and_others_are_allowed_after_one_quiet_interval() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deny");
        fs::write(&path, digest('1')).expect("a file");
        let mut file = DenyFile::new(&path);
        let denied = DeniedComponents::read(&path).expect("a list");
        file.look(&denied);
        assert_eq!(denies(&denied), "1");
        fs::write(&path, format!("{}\n{}", digest('2'), digest('3'))).expect("a file");
        file.look(&denied);
        assert_eq!(denies(&denied), "123");
        fs::write(&path, "").expect("a file");
        file.look(&denied);
        assert_eq!(denies(&denied), "123", "the file may not be complete");
        fs::write(&path, format!("{}\n", digest('2'))).expect("a file");
        file.look(&denied);
        assert_eq!(denies(&denied), "123");
        file.look(&denied);
        assert_eq!(denies(&denied), "2");
    }

    #[test]
    fn a_file_that_cannot_be_used_leaves_the_last_good_list_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deny");
        fs::write(&path, format!("# two\n{}", digest('1'))).expect("a file");
        let mut file = DenyFile::new(&path);
        let denied = DeniedComponents::read(&path).expect("a list");
        fs::write(&path, format!("{}\nsha256:2", digest('2'))).expect("a file");
        assert!(matches!(read(&path), Err(DenyFileError::List { .. })));
        for _ in 0..3 {
            file.look(&denied);
            assert_eq!(denies(&denied), "1");
        }
        assert!(file.failure.as_ref().is_some_and(|failure| failure.contains("line 2")), "{:?}", file.failure);
        fs::remove_file(&path).expect("it is removed");
        for _ in 0..3 {
            file.look(&denied);
            assert_eq!(denies(&denied), "1");
        }
        assert!(matches!(read(&path), Err(DenyFileError::Read { .. })));
        fs::write(&path, digest('3')).expect("a file");
        for _ in 0..2 {
            file.look(&denied);
        }
        assert_eq!((denies(&denied).as_str(), file.failure), ("3", None));
    }

    #[test]
    fn the_manifest_of_a_component_is_that_of_its_reference_in_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |reference: &str, component: char| manifest(folder.path(), reference, &digest(component));
        let reference = "oci://registry.example/acme/redact:1.2";
        assert_eq!(of(reference, '1').expect("no lock"), None);
        let mut lock = Lock::default();
        lock.put(LockedComponent {
            reference: reference.parse().expect("a reference"),
            manifest: digest('2').parse().expect("a digest"),
            component: digest('1').parse().expect("a digest"),
            size: 1,
            signers: Vec::new(),
            grants: Vec::new(),
        });
        lock.write(folder.path()).expect("a lock");
        assert_eq!(of(reference, '1').expect("a lock"), Some(digest('2')));
        assert_eq!(of(reference, '3').expect("a lock"), None, "another component");
        assert_eq!(of("redact", '1').expect("a lock"), None);
        assert_eq!(of("oci://registry.example/acme/redact:1.3", '1').expect("a lock"), None);
        std::fs::write(folder.path().join("annex.lock"), "no lock").expect("a file");
        assert!(of(reference, '1').is_err());
    }

    #[test]
    fn a_component_is_denied_by_its_own_digest_or_by_that_of_its_manifest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deny");
        fs::write(&path, digest('1')).expect("a file");
        let denied = DeniedComponents::read(&path).expect("a list");
        let [listed, other] = [digest('1'), digest('2')];
        assert_eq!(denied.denial(&listed, Some(&other)), Some(Denial::Component(listed.clone())));
        assert_eq!(denied.denial(&other, Some(&listed)), Some(Denial::Manifest(listed)));
        assert_eq!(denied.denial(&other, Some(&digest('3'))), None);
        assert_eq!(DeniedComponents::default().denial(&digest('1'), None), None);
    }
}
