//! Loads what the config and the managed folder name. What is loaded already is not loaded again.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use annex_files::Purpose;
use annex_leases::editions::Editions;
use annex_protocol::Timestamp;
use annex_runtime::{Digest, Extension, Installation, Installed, LoadError, MAX_COMPONENT_BYTES, Runtime};
use annex_tasks::TaskStore;
use annex_telemetry::fault;

use super::arrange::{self, Arranged, Candidate};
use super::error::InstallError;
use super::folder::{Folder, Found};
use super::kept::KeptVersion;
use super::version::{Origin, Version};
use crate::config::{Config, ExtensionConfig};
use crate::locations::Locations;

/// The occasion on which the sources are read. It decides what a broken one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Every extension that the config names must load, and every one in the folder that is required or always active.
    Start,
    /// Every extension that the config names must load, or nothing changes.
    Reload,
    /// A broken file changes nothing.
    Rescan,
}

/// A decision of the running process against what a source says.
#[derive(Clone)]
pub(super) struct Overruled {
    /// The version that the source would give: its origin, settings and digest.
    pub(super) origin: Origin,
    pub(super) settings: ExtensionConfig,
    pub(super) digest: Digest,
    /// The version that is installed in its place; `None` when it was removed.
    pub(super) instead: Option<Version>,
}

/// The reason for which a source was left out, or kept its last good version.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) source: String,
    pub(crate) reason: String,
    pub(crate) at: Timestamp,
}

/// The versions that are to be installed.
pub(super) struct Plan {
    pub(super) versions: Vec<Version>,
    pub(super) installed: Installed,
    pub(super) failures: Vec<Failure>,
    /// The decisions that still stand.
    pub(super) overruled: Vec<Overruled>,
}

impl From<Arranged> for Plan {
    fn from(Arranged { versions, installed, .. }: Arranged) -> Self {
        Self { versions, installed, failures: Vec::new(), overruled: Vec::new() }
    }
}

/// Something named by a source.
struct Wanted {
    origin: Origin,
    component: PathBuf,
    settings: Result<ExtensionConfig, String>,
    is_optional: bool,
}

/// The versions and decisions that are in force while a plan is made.
pub(super) struct Present<'a> {
    pub(super) versions: &'a [Version],
    pub(super) overruled: &'a [Overruled],
}

/// Loads the components of one installer.
pub(super) struct Loader {
    pub(super) runtime: Runtime,
    pub(super) locations: Locations,
    pub(super) folder: Option<Folder>,
    /// Its ceiling bounds the limits, and its `[auth]` tells callers apart. A reload of the config changes it.
    pub(super) process: Mutex<Arc<Config>>,
    pub(super) loaded: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Where components are kept for other processes that install the same; `None` where there are none.
    pub(super) editions: Option<Arc<Editions>>,
    /// Has the components that were uploaded for tenants; `None` where none can be.
    pub(super) uploads: Option<Arc<dyn TaskStore>>,
}

impl Loader {
    /// Reads all sources and loads what is new in them.
    pub(super) async fn plan(
        &self,
        config: &[ExtensionConfig],
        present: &Present<'_>,
        occasion: Occasion,
    ) -> Result<Plan, InstallError> {
        let mut failures = Vec::new();
        let mut overruled = Vec::new();
        let mut versions = Vec::new();
        for extension in config {
            let wanted = self.named(extension);
            let loaded = self.load_wanted(&wanted, present, &mut overruled).await;
            // The config's list is all or nothing. Only a rescan, which nobody has asked for, keeps the last good
            // version.
            let loaded = tolerate(loaded, &wanted, present, occasion == Occasion::Rescan, &mut failures)?;
            versions.extend(loaded.map(|candidate| candidate.version));
        }
        let mut candidates = Vec::new();
        for wanted in self.in_folder().await? {
            // In the folder each file stands for itself, but no server starts without an extension that must load.
            let is_tolerated = occasion != Occasion::Start || wanted.is_optional;
            let loaded = self.load_wanted(&wanted, present, &mut overruled).await;
            candidates.extend(tolerate(loaded, &wanted, present, is_tolerated, &mut failures)?);
        }
        if occasion == Occasion::Rescan {
            candidates.extend(self.vanished(present, &candidates, &mut failures));
        }
        // A component that was added has no source that could be read again, so it stays.
        let added = present.versions.iter().filter(|version| matches!(version.origin, Origin::Added { .. }));
        let added: Vec<Version> = added.cloned().collect();
        let Arranged { versions, installed, refused } = arrange::arrange(&versions, candidates, &added)?;
        for (version, source) in refused {
            let must_load = version.settings.must_load();
            let origin = version.origin;
            let error = InstallError::Load { origin, source };
            // Whatever took its place was not asked for either.
            if must_load && occasion == Occasion::Start {
                return Err(error);
            }
            failures.push(failed(&error));
        }
        Ok(Plan { versions, installed, failures, overruled })
    }

    /// Components that must load and whose file is gone from the folder. They stay, because it may be a folder that is not
    /// mounted: removing them takes the command, or reading the config again.
    fn vanished(&self, present: &Present<'_>, found: &[Candidate], failures: &mut Vec<Failure>) -> Vec<Candidate> {
        let is_found = |version: &Version| found.iter().any(|candidate| candidate.version.origin == version.origin);
        let mut vanished = Vec::new();
        for version in present.versions.iter().filter(|version| version.settings.must_load() && !is_found(version)) {
            let Some((folder, Origin::Folder { name })) = self.folder.as_ref().map(|folder| (folder, &version.origin))
            else {
                continue;
            };
            let source = io::Error::new(io::ErrorKind::NotFound, "no server starts without it, and its file is gone");
            failures.push(failed(&InstallError::Read {
                origin: version.origin.clone(),
                path: folder.component(name),
                source,
            }));
            vanished.push(Candidate::unchanged(version.clone()));
        }
        vanished
    }

    fn named(&self, extension: &ExtensionConfig) -> Wanted {
        Wanted {
            origin: Origin::Config { component: extension.component.clone(), place: extension.place.clone() },
            component: self.locations.component(&extension.component),
            settings: Ok(extension.clone()),
            is_optional: !extension.must_load(),
        }
    }

    async fn in_folder(&self) -> Result<Vec<Wanted>, InstallError> {
        let Some(folder) = self.folder.clone() else { return Ok(Vec::new()) };
        let path = folder.path().to_owned();
        let found = blocking(move || folder.list()).await;
        let found = found.map_err(|source| InstallError::Folder { path, source })?;
        let wanted = |Found { name, component, settings, is_optional }| {
            let origin = Origin::Folder { name };
            Wanted { origin, component, settings, is_optional }
        };
        Ok(found.into_iter().map(wanted).collect())
    }

    /// The version that the source gives; `None` when it was removed although the source names it.
    async fn load_wanted(
        &self,
        wanted: &Wanted,
        present: &Present<'_>,
        overruled: &mut Vec<Overruled>,
    ) -> Result<Option<Candidate>, InstallError> {
        let Wanted { origin, settings, .. } = wanted;
        let wrong =
            |reason: &String| InstallError::Setting { origin: origin.clone(), key: "settings", reason: reason.clone() };
        let settings = settings.as_ref().map_err(wrong)?;
        let (digest, bytes) = self.read(wanted).await?;
        if settings.digest.as_ref().is_some_and(|named| *named != digest.to_string()) {
            let reason = format!("is another file by now, {digest}; put back the one that is named");
            return Err(InstallError::Setting { origin: origin.clone(), key: "component", reason });
        }
        // A decision holds only against exactly what the source said when it was made.
        let decision = present
            .overruled
            .iter()
            .find(|decision| decision.origin == *origin && decision.settings == *settings && decision.digest == digest);
        if let Some(decision) = decision {
            overruled.push(decision.clone());
            return Ok(decision.instead.clone().map(Candidate::unchanged));
        }
        let version = self.load(origin.clone(), settings.clone(), digest, bytes, present.versions).await?;
        let is_new = present.versions.iter().all(|earlier| earlier.number != version.number);
        Ok(Some(Candidate { version, fallback: installed_from(wanted, present), is_new }))
    }

    /// Loads one component. Where that would give one of the versions that are `there`, that one is given again.
    pub(super) async fn load(
        &self,
        origin: Origin,
        settings: ExtensionConfig,
        digest: Digest,
        component: Vec<u8>,
        there: &[Version],
    ) -> Result<Version, InstallError> {
        let installation = self.installation(&origin, &settings)?;
        if let Some(same) = same(&origin, &settings, digest, &installation, there) {
            return Ok(same);
        }
        let kept = self.editions.as_ref().map(|editions| (editions, component.clone()));
        let version = self.compile((origin, settings), component, installation).await?;
        if let Some((editions, component)) = kept {
            editions.keep(&digest.to_string(), &component).await?;
        }
        Ok(version)
    }

    /// Loads a component that other processes have kept, where it is not one of the versions that are `there`.
    pub(super) async fn load_kept(
        &self,
        editions: &Editions,
        kept: KeptVersion,
        there: &[Version],
    ) -> Result<Version, InstallError> {
        let KeptVersion { origin, settings, digest } = kept;
        let installation = self.installation(&origin, &settings)?;
        let is_same = |version: &&Version| version.extension.digest().to_string() == digest;
        let there: Vec<Version> = there.iter().filter(is_same).cloned().collect();
        if let Some(first) = there.first()
            && let Some(same) = same(&origin, &settings, first.extension.digest(), &installation, &there)
        {
            return Ok(same);
        }
        let component = editions.component(&digest).await?;
        // One that is not what it was is as good as none.
        let component = component.filter(|component| Digest::of(component).to_string() == digest);
        let component = component.ok_or(InstallError::NotKept { digest })?;
        self.compile((origin, settings), component, installation).await
    }

    /// The config of the process that counts now.
    pub(super) fn process(&self) -> Arc<Config> {
        Arc::clone(&self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn installation(&self, origin: &Origin, settings: &ExtensionConfig) -> Result<Installation, InstallError> {
        let wrong = |(key, reason)| InstallError::Setting { origin: origin.clone(), key, reason };
        let process = self.process();
        settings.check_callers(process.auth.as_ref()).map_err(wrong)?;
        settings.installation(&self.locations.config, &process.runtime.ceiling).map_err(wrong)
    }

    async fn compile(
        &self,
        (origin, settings): (Origin, ExtensionConfig),
        component: Vec<u8>,
        installation: Installation,
    ) -> Result<Version, InstallError> {
        let refuse = |source: LoadError| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            InstallError::Load { origin: origin.clone(), source }
        };
        let extension =
            Arc::new(self.runtime.load_named(origin.name(), component, installation).await.map_err(refuse)?);
        let number = self.loaded.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Ok(Version { number, extension, origin, settings, loaded_at: Timestamp::now() })
    }

    /// The digests of the components that the config names, in its order.
    pub(super) async fn digests(&self, config: &[ExtensionConfig]) -> Result<Vec<Digest>, InstallError> {
        let mut digests = Vec::new();
        for extension in config {
            let (digest, _) = self.read(&self.named(extension)).await?;
            digests.push(digest);
        }
        Ok(digests)
    }

    /// The digest is taken from the bytes that are loaded, because the file may change meanwhile. Reading and digesting up to
    /// 32 MiB is done off the threads that serve requests.
    async fn read(&self, wanted: &Wanted) -> Result<(Digest, Vec<u8>), InstallError> {
        let Wanted { origin, component, settings, .. } = wanted;
        if let Ok(Some(digest)) = settings.as_ref().map(ExtensionConfig::uploaded) {
            return self.read_uploaded(origin, digest).await;
        }
        let file = component.clone();
        let purpose = purpose(origin);
        let read = move || {
            let bytes = annex_files::read(&file, purpose, MAX_COMPONENT_BYTES)?;
            Ok((Digest::of(&bytes), bytes))
        };
        // From the root, so that nobody has to guess where it was looked for.
        let whole_path = || std::path::absolute(component).unwrap_or_else(|_| component.clone());
        let unreadable = |source| InstallError::Read {
            origin: origin.clone(),
            path: whole_path(),
            source: hint(origin, source, &self.locations),
        };
        blocking(read).await.map_err(unreadable)
    }

    /// Reads a component that was uploaded.
    async fn read_uploaded(&self, origin: &Origin, digest: &str) -> Result<(Digest, Vec<u8>), InstallError> {
        let wrong = |reason: &str| {
            let (origin, reason) = (origin.clone(), reason.to_owned());
            InstallError::Setting { origin, key: "component", reason }
        };
        let gone = || wrong("is not among the components that were uploaded; upload it again");
        let found = self.uploads.as_ref().ok_or_else(gone)?.components().find(digest).await.map_err(|error| {
            fault::log(&error);
            wrong("the components that were uploaded cannot be read now")
        })?;
        let bytes = found.ok_or_else(gone)?;
        // Digesting up to 32 MiB is done off the threads that serve requests.
        let read = move || Ok((Digest::of(&bytes), bytes));
        blocking(read).await.map_err(|_| wrong("reading it broke off"))
    }
}

/// The version of `there` that loading would give again.
fn same(
    origin: &Origin,
    settings: &ExtensionConfig,
    digest: Digest,
    installation: &Installation,
    there: &[Version],
) -> Option<Version> {
    let is_same = |version: &&Version| {
        // Secrets may be others under the same settings.
        version.is_of(origin, settings, digest) && version.extension.has_grants(&installation.grants)
    };
    there.iter().find(is_same).cloned()
}

impl Loader {
    /// Loads a component to run beside the version in force. The numbers of its calls are its own.
    pub(super) async fn load_aside(
        &self,
        origin: &Origin,
        settings: &ExtensionConfig,
        component: Vec<u8>,
    ) -> Result<Arc<Extension>, InstallError> {
        let installation = self.installation(origin, settings)?;
        let loaded = self.runtime.aside().load_named(origin.name(), component, installation).await;
        Ok(Arc::new(loaded.map_err(|source| InstallError::Load { origin: origin.clone(), source })?))
    }
}

/// The purpose of the component's file: named by the operator, or found in the folder.
fn purpose(origin: &Origin) -> Purpose {
    match origin {
        Origin::Config { .. } => Purpose::Named,
        Origin::Folder { .. } | Origin::Added { .. } => Purpose::Managed,
    }
}

/// Versions that are loaded, in their order.
pub(super) fn in_order(versions: Vec<Version>) -> Result<Arranged, InstallError> {
    let mut config = Vec::new();
    let mut folder = Vec::new();
    let mut added = Vec::new();
    for version in versions {
        match &version.origin {
            Origin::Config { .. } => config.push(version),
            Origin::Folder { .. } => folder.push(Candidate::unchanged(version)),
            Origin::Added { .. } => added.push(version),
        }
    }
    arrange::arrange(&config, folder, &added)
}

/// Keeps what was installed in the place of a broken source, if that is allowed.
fn tolerate(
    loaded: Result<Option<Candidate>, InstallError>,
    wanted: &Wanted,
    present: &Present<'_>,
    is_tolerated: bool,
    failures: &mut Vec<Failure>,
) -> Result<Option<Candidate>, InstallError> {
    match loaded {
        Err(error) if is_tolerated => {
            failures.push(failed(&error));
            Ok(installed_from(wanted, present).map(Candidate::unchanged))
        }
        loaded => loaded,
    }
}

/// The version that is installed from the same source, whatever its file held then.
fn installed_from(wanted: &Wanted, present: &Present<'_>) -> Option<Version> {
    let from_there: Vec<&Version> = present.versions.iter().filter(|version| version.origin == wanted.origin).collect();
    let is_same = |version: &&&Version| wanted.settings.as_ref().is_ok_and(|wanted| *wanted == version.settings);
    match from_there.as_slice() {
        [only] => Some((*only).clone()),
        // One component may stand in the config several times, with other settings each.
        several => several.iter().find(is_same).map(|version| (*version).clone()),
    }
}

/// Adds to an error what ships. A bare name that is not there is a typo, or the executable was moved without its components.
fn hint(origin: &Origin, error: io::Error, locations: &Locations) -> io::Error {
    match origin {
        Origin::Config { component, .. } if error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("{error}{}", locations.instead(component)))
        }
        _ => error,
    }
}

/// Logs a failure and keeps it for whoever asks later.
pub(super) fn failed(error: &InstallError) -> Failure {
    let source = error.source_name();
    // The reason leaves out the lines of files that errors of TOML quote. They may have secrets, and the admin API
    // shows the reason.
    let reason = error.public_text();
    match error {
        InstallError::Config(config) => {
            for line in config.lines() {
                tracing::error!(source, "the config is not applied: {line}");
            }
        }
        _ => tracing::error!(source, "not installed, what was there stays: {reason}"),
    }
    Failure { source, reason, at: Timestamp::now() }
}

/// Does work on files on a thread where waiting for a disk holds up no request.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
}
