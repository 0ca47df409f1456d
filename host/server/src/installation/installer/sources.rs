//! The places of components: files, `annex.lock` with the cache, and uploads. Each component is read once, and its digest is
//! that of the bytes that were read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_files::Purpose;
use annex_registry::is_reference;
use annex_runtime::{Digest, MAX_COMPONENT_BYTES};
use annex_telemetry::fault;

use super::error::InstallError;
use super::folder::FolderEntry;
use super::loader::{Loader, blocking};
use super::version::Origin;
use crate::config::ExtensionConfig;
use crate::installation::locked::LockedComponents;
use crate::installation::named;
use crate::locations::Locations;
use crate::lock::LOCK_FILE;

/// An extension in the config or the managed folder, before it is loaded.
pub(super) struct SourceEntry {
    pub(super) origin: Origin,
    pub(super) component: ComponentSource,
    pub(super) settings: Result<ExtensionConfig, String>,
    pub(super) is_optional: bool,
}

/// The place of a component.
pub(super) enum ComponentSource {
    File(PathBuf),
    /// A reference, and the lock and the cache in which its component is found.
    Locked(String, Arc<LockedComponents>),
    /// The digest of an uploaded component.
    Uploaded(String),
}

impl Loader {
    /// The extensions of the config. The lock and the keys of the policy are read once for all of them.
    pub(super) async fn named(&self, config: &[ExtensionConfig]) -> Result<Vec<SourceEntry>, InstallError> {
        let has_references = config.iter().any(|extension| is_reference(&extension.component));
        let locked = if has_references { Some(self.locked().await?) } else { None };
        let entries = config.iter().map(|extension| {
            let component = &extension.component;
            let source = match (extension.uploaded(), &locked) {
                (Some(digest), _) => ComponentSource::Uploaded(digest.to_owned()),
                (None, Some(locked)) if is_reference(component) => {
                    ComponentSource::Locked(component.clone(), Arc::clone(locked))
                }
                _ => ComponentSource::File(self.locations.component(component)),
            };
            SourceEntry {
                origin: Origin::Config { component: component.clone(), place: extension.place.clone() },
                component: source,
                settings: Ok(extension.clone()),
                is_optional: !extension.must_load(),
            }
        });
        Ok(entries.collect())
    }

    /// Opens the lock and the policy.
    async fn locked(&self) -> Result<Arc<LockedComponents>, InstallError> {
        let (locations, process, trust) = (self.locations.clone(), self.process(), self.trust.clone());
        let path = locations.config.join(LOCK_FILE);
        let open = move || Ok(Arc::new(LockedComponents::open(&locations, &process, trust.as_ref())));
        blocking(open).await.map_err(|source| InstallError::Folder { path, source })
    }

    /// Checks extensions that were just read from the config. All mistakes are reported.
    pub(super) async fn check_read(&self, extensions: Vec<ExtensionConfig>) -> Result<(), InstallError> {
        let (locations, process, trust) = (self.locations.clone(), self.process(), self.trust.clone());
        let path = locations.config.clone();
        let check = move || Ok(named::check_read(&extensions, &locations, &process, trust.as_ref()));
        let checked = blocking(check).await.map_err(|source| InstallError::Folder { path, source })?;
        checked.map_err(InstallError::Config)
    }

    pub(super) async fn in_folder(&self) -> Result<Vec<SourceEntry>, InstallError> {
        let Some(folder) = self.folder.clone() else { return Ok(Vec::new()) };
        let path = folder.path().to_owned();
        let found = blocking(move || folder.list()).await;
        let found = found.map_err(|source| InstallError::Folder { path, source })?;
        let wanted = |FolderEntry { name, component, settings, is_optional }| {
            let (origin, component) = (Origin::Folder { name }, ComponentSource::File(component));
            SourceEntry { origin, component, settings, is_optional }
        };
        Ok(found.into_iter().map(wanted).collect())
    }

    /// Reads the component of a reference from the lock and the cache of this process, which verifies it itself. The
    /// component must be the one that all processes install.
    pub(super) async fn read_kept(
        &self,
        origin: &Origin,
        reference: &str,
        digest: &str,
    ) -> Result<Vec<u8>, InstallError> {
        let (found, component) = read_locked(origin, reference, &self.locked().await?).await?;
        if found.to_string() == digest {
            return Ok(component);
        }
        let reason =
            format!("is {digest} for the other replicas, and {found} in annex.lock; give all replicas one lock");
        Err(InstallError::Setting { origin: origin.clone(), key: "component", reason })
    }

    /// Reads the components of the config and returns their digests, in the order of the config.
    pub(super) async fn digests(&self, config: &[ExtensionConfig]) -> Result<Vec<Digest>, InstallError> {
        let mut digests = Vec::new();
        for wanted in self.named(config).await? {
            let (digest, _) = self.read(&wanted).await?;
            digests.push(digest);
        }
        Ok(digests)
    }

    /// Reads a component and computes the digest of its bytes. Both come from one read, because the file may change
    /// between two reads.
    pub(super) async fn read(&self, wanted: &SourceEntry) -> Result<(Digest, Vec<u8>), InstallError> {
        let SourceEntry { origin, component, .. } = wanted;
        match component {
            ComponentSource::File(file) => self.read_file(origin, file).await,
            ComponentSource::Locked(reference, locked) => read_locked(origin, reference, locked).await,
            ComponentSource::Uploaded(digest) => self.read_uploaded(origin, digest).await,
        }
    }

    /// Reads the file of a component. Files have up to 32 MiB, so the work runs on a blocking thread.
    async fn read_file(&self, origin: &Origin, component: &Path) -> Result<(Digest, Vec<u8>), InstallError> {
        let file = component.to_owned();
        let purpose = purpose(origin);
        let read = move || {
            let bytes = annex_files::read(&file, purpose, MAX_COMPONENT_BYTES)?;
            Ok((Digest::of(&bytes), bytes))
        };
        // The error names the absolute path, so that operators see which file was tried.
        let whole_path = || std::path::absolute(component).unwrap_or_else(|_| component.to_owned());
        let unreadable = |source| InstallError::Read {
            origin: origin.clone(),
            path: whole_path(),
            source: hint(origin, source, &self.locations),
        };
        blocking(read).await.map_err(unreadable)
    }

    /// Reads an uploaded component.
    async fn read_uploaded(&self, origin: &Origin, digest: &str) -> Result<(Digest, Vec<u8>), InstallError> {
        let wrong = |reason: &str| {
            let (origin, reason) = (origin.clone(), reason.to_owned());
            InstallError::Setting { origin, key: "component", reason }
        };
        let gone = || wrong("is not among the components that were uploaded; upload it again");
        let found = self.uploads.as_ref().ok_or_else(gone)?.find(digest).await.map_err(|error| {
            fault::log(&error);
            wrong("the components that were uploaded cannot be read now")
        })?;
        let bytes = found.ok_or_else(gone)?;
        // Components have up to 32 MiB, so the digest is computed on a blocking thread.
        let read = move || Ok((Digest::of(&bytes), bytes));
        blocking(read).await.map_err(|_| wrong("reading it broke off"))
    }
}

/// Reads and verifies the component of a reference.
async fn read_locked(
    origin: &Origin,
    reference: &str,
    locked: &Arc<LockedComponents>,
) -> Result<(Digest, Vec<u8>), InstallError> {
    let wrong = |reason: String| InstallError::Setting { origin: origin.clone(), key: "component", reason };
    let (named, locked) = (reference.to_owned(), Arc::clone(locked));
    let read = move || Ok(locked.read(&named).map(|bytes| (Digest::of(&bytes), bytes)));
    let read = blocking(read).await.map_err(|error| wrong(fault::text(&error)))?;
    read.map_err(|error| wrong(fault::text(&error)))
}

/// The purpose for which a component's file is opened: as a file that the operator has named, or as a file of the
/// managed folder.
fn purpose(origin: &Origin) -> Purpose {
    match origin {
        Origin::Config { .. } => Purpose::Named,
        Origin::Folder { .. } | Origin::Added { .. } => Purpose::Managed,
    }
}

/// Adds a hint about the components that ship with Annex to the error for a component of the config that is not found.
/// If a bare name is not found, the name has a typo, or the executable was moved without its components.
fn hint(origin: &Origin, error: io::Error, locations: &Locations) -> io::Error {
    match origin {
        Origin::Config { component, .. } if error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("{error}{}", locations.instead(component)))
        }
        _ => error,
    }
}
