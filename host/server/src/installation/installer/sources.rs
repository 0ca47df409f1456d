//! The places of components: files, `annex.lock` with the cache, uploads, and components that were pulled for tenants. Each component is read once, and its digest is
//! that of the bytes that were read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_files::Purpose;
use annex_registry::{Reference, ReferenceError, is_reference};
use annex_runtime::{Digest, MAX_COMPONENT_BYTES};
use annex_telemetry::fault;

use super::error::InstallError;
use super::folder::FolderEntry;
use super::loader::{Loader, blocking};
use super::version::Origin;
use crate::config::ExtensionConfig;
use crate::installation::locked::{LockedComponents, VerifiedComponent};
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
    /// A reference whose component was pulled for a tenant, and the policy that verifies it.
    Pulled(String, Arc<LockedComponents>),
    /// The digest of an uploaded component.
    Uploaded(String),
}

/// The component of a request to install an extension.
pub(crate) enum AddedComponent {
    /// The bytes of the component.
    Bytes(Vec<u8>),
    /// A reference, whose component is in `annex.lock` and in the cache.
    Reference {
        reference: String,
        /// The digest of the component that the operator has seen. A component that was locked since then is refused.
        approved: Option<Digest>,
    },
}

impl AddedComponent {
    /// The last part of the path of a reference.
    ///
    /// # Errors
    /// The text is no reference.
    pub(crate) fn name_of(reference: &str) -> Result<String, ReferenceError> {
        let reference: Reference = reference.parse()?;
        Ok(reference.repository().rsplit('/').next().unwrap_or_default().to_owned())
    }
}

/// A component that was read and not compiled yet.
pub(super) struct ComponentBytes {
    /// The digest of `bytes`.
    pub(super) digest: Digest,
    pub(super) bytes: Vec<u8>,
    /// `None` for a component that no reference names.
    pub(super) provenance: Option<Provenance>,
}

/// The facts of a registry and of `annex.lock` about a component.
#[derive(Clone)]
pub(super) struct Provenance {
    /// The digest of the manifest.
    pub(super) manifest: String,
    /// The names of the grants that the operator has accepted in `annex.lock`. `None` if the component is not there.
    pub(super) accepted: Option<Vec<String>>,
}

impl ComponentBytes {
    /// A component that no reference names. Computes the digest of up to 32 MiB.
    pub(super) fn plain(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes, provenance: None }
    }
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
                (None, Some(locked)) if extension.is_pulled => {
                    ComponentSource::Pulled(component.clone(), Arc::clone(locked))
                }
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
        settings: &ExtensionConfig,
        digest: &str,
    ) -> Result<ComponentBytes, InstallError> {
        let reference = &settings.component;
        let component = if settings.is_pulled {
            self.read_pulled(origin, reference, &self.locked().await?).await?
        } else {
            self.read_reference(origin, reference).await?
        };
        let found = component.digest;
        if found.to_string() == digest {
            return Ok(component);
        }
        let reason =
            format!("is {digest} for the other replicas, and {found} in annex.lock; give all replicas one lock");
        Err(InstallError::Setting { origin: origin.clone(), key: "component", reason })
    }

    /// Reads and verifies the component of a reference from the lock and the cache.
    pub(super) async fn read_reference(
        &self,
        origin: &Origin,
        reference: &str,
    ) -> Result<ComponentBytes, InstallError> {
        read_locked(origin, reference, &self.locked().await?).await
    }

    /// Reads the components of the config and returns their digests, in the order of the config.
    pub(super) async fn digests(&self, config: &[ExtensionConfig]) -> Result<Vec<Digest>, InstallError> {
        let mut digests = Vec::new();
        for wanted in self.named(config).await? {
            digests.push(self.read(&wanted).await?.digest);
        }
        Ok(digests)
    }

    /// Reads a component and computes the digest of its bytes. Both come from one read, because the file may change
    /// between two reads.
    pub(super) async fn read(&self, wanted: &SourceEntry) -> Result<ComponentBytes, InstallError> {
        let SourceEntry { origin, component, .. } = wanted;
        match component {
            ComponentSource::File(file) => self.read_file(origin, file).await,
            ComponentSource::Locked(reference, locked) => read_locked(origin, reference, locked).await,
            ComponentSource::Pulled(reference, locked) => self.read_pulled(origin, reference, locked).await,
            ComponentSource::Uploaded(digest) => self.read_uploaded(origin, digest).await,
        }
    }

    /// Reads the file of a component. Files have up to 32 MiB, so the work runs on a blocking thread.
    async fn read_file(&self, origin: &Origin, component: &Path) -> Result<ComponentBytes, InstallError> {
        let file = component.to_owned();
        let purpose = purpose(origin);
        let read = move || Ok(ComponentBytes::plain(annex_files::read(&file, purpose, MAX_COMPONENT_BYTES)?));
        // The error names the absolute path, so that operators see which file was tried.
        let whole_path = || std::path::absolute(component).unwrap_or_else(|_| component.to_owned());
        let unreadable = |source| InstallError::Read {
            origin: origin.clone(),
            path: whole_path(),
            source: hint(origin, source, &self.locations),
        };
        blocking(read).await.map_err(unreadable)
    }

    /// Reads a component that was pulled for a tenant, and verifies it by the policy of this process.
    async fn read_pulled(
        &self,
        origin: &Origin,
        reference: &str,
        locked: &Arc<LockedComponents>,
    ) -> Result<ComponentBytes, InstallError> {
        let wrong = |reason: String| InstallError::Setting { origin: origin.clone(), key: "component", reason };
        let gone = || wrong(format!("{reference} is not stored for the tenant; send the text of the tenant again"));
        let parsed: Reference = reference.parse().map_err(|error: ReferenceError| wrong(error.to_string()))?;
        let digest = parsed.digest().ok_or_else(gone)?.clone();
        let found = self.uploads.as_ref().ok_or_else(gone)?.find_pulled(digest.as_str()).await.map_err(|error| {
            fault::log(&error);
            wrong("the components of tenants cannot be read now".to_owned())
        })?;
        let pulled = found.ok_or_else(gone)?;
        let locked = Arc::clone(locked);
        let verify = move || {
            Ok(locked.verify_pulled(&parsed, &pulled).map(|manifest| {
                let provenance = Provenance { manifest: manifest.to_string(), accepted: None };
                ComponentBytes { provenance: Some(provenance), ..ComponentBytes::plain(pulled.component) }
            }))
        };
        let verified = blocking(verify).await.map_err(|error| wrong(fault::text(&error)))?;
        verified.map_err(|error| wrong(fault::text(&error)))
    }

    /// Reads an uploaded component.
    async fn read_uploaded(&self, origin: &Origin, digest: &str) -> Result<ComponentBytes, InstallError> {
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
        blocking(move || Ok(ComponentBytes::plain(bytes))).await.map_err(|_| wrong("reading it broke off"))
    }
}

/// Reads and verifies the component of a reference.
async fn read_locked(
    origin: &Origin,
    reference: &str,
    locked: &Arc<LockedComponents>,
) -> Result<ComponentBytes, InstallError> {
    let wrong = |reason: String| InstallError::Setting { origin: origin.clone(), key: "component", reason };
    let (named, locked) = (reference.to_owned(), Arc::clone(locked));
    let read = move || Ok(locked.read(&named).map(ComponentBytes::from));
    let read = blocking(read).await.map_err(|error| wrong(fault::text(&error)))?;
    read.map_err(|error| wrong(fault::text(&error)))
}

impl From<VerifiedComponent> for ComponentBytes {
    fn from(VerifiedComponent { bytes, manifest, accepted }: VerifiedComponent) -> Self {
        let provenance = Provenance { manifest: manifest.to_string(), accepted };
        Self { provenance: Some(provenance), ..Self::plain(bytes) }
    }
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
