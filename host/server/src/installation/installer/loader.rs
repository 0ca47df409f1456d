//! Loads the extensions of the config and the managed folder. A version that is already loaded is reused.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use annex_leases::editions::Editions;
use annex_protocol::Timestamp;
use annex_registry::is_reference;
use annex_runtime::{Digest, Extension, Hook, Installation, Installed, LoadError, Runtime};
use annex_telemetry::fault;
use annex_tenants::ComponentStore;
use annex_trust::TrustConfig;

use super::arrange::{self, Arrangement, Candidate};
use super::error::InstallError;
use super::folder::Folder;
use super::kept::KeptVersion;
use super::sources::{ComponentBytes, Provenance, SourceEntry};
use super::version::{Origin, Version};
use crate::config::served::ServedConfig;
use crate::config::{AgentConfig, Config, ExtensionConfig};
use crate::installation::denied::{self, DeniedComponents};
use crate::locations::Locations;

/// The occasion on which the sources are read. The effect of a broken source depends on the occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A start of the server. The start fails if an extension of the config does not load. It also fails if a required
    /// or always active extension of the managed folder does not load.
    Start,
    /// A reload. Nothing changes if an extension of the config does not load.
    Reload,
    /// A change of a file. If the new file is broken, the last good version stays.
    Rescan,
}

/// A decision of an operator that differs from a source, such as a rollback. The decision applies until the source
/// changes.
#[derive(Clone)]
pub(super) struct OperatorOverride {
    /// The origin of the version that the source names. The next two fields are the settings and the digest of this
    /// version.
    pub(super) origin: Origin,
    pub(super) settings: ExtensionConfig,
    pub(super) digest: Digest,
    /// The version that is installed instead. `None` if the extension was removed.
    pub(super) instead: Option<Version>,
}

/// The reason why a source could not be installed. If a version of the source was installed before, that version stays.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) source: String,
    pub(crate) reason: String,
    pub(crate) at: Timestamp,
}

/// The versions to install.
pub(super) struct Plan {
    pub(super) versions: Vec<Version>,
    pub(super) installed: Installed,
    pub(super) failures: Vec<Failure>,
    /// The decisions of operators that still apply.
    pub(super) overruled: Vec<OperatorOverride>,
}

impl From<Arrangement> for Plan {
    fn from(Arrangement { versions, installed, .. }: Arrangement) -> Self {
        Self { versions, installed, failures: Vec::new(), overruled: Vec::new() }
    }
}

/// What is in force before a plan is made: the installed versions, and the decisions of operators.
pub(super) struct Present<'a> {
    pub(super) versions: &'a [Version],
    pub(super) overruled: &'a [OperatorOverride],
}

/// Loads components for one installer.
pub(super) struct Loader {
    pub(super) runtime: Runtime,
    pub(super) locations: Locations,
    pub(super) folder: Option<Folder>,
    /// The config of the process. Its ceiling bounds the limits of each extension, and its `[auth]` defines the
    /// callers. A reload replaces the config.
    pub(super) process: Mutex<Arc<Config>>,
    /// The table `[trust]` of a tenant's file. A change of the table loads the tenant again.
    pub(super) trust: Option<TrustConfig>,
    pub(super) loaded: AtomicU64,
    pub(super) refused: AtomicU64,
    /// The database with the components that all processes install. `None` if no other process serves the agent.
    pub(super) editions: Option<Arc<Editions>>,
    /// The store of components that were uploaded for tenants. `None` if uploads are not possible.
    pub(super) uploads: Option<Arc<dyn ComponentStore>>,
    /// Why no extension can steer the agent. `None` if extensions can.
    pub(super) unsteered: Option<&'static str>,
    /// The components that must not run.
    pub(super) denied: Arc<DeniedComponents>,
}

impl Loader {
    /// Reads all sources and loads the versions that are new.
    pub(super) async fn plan(
        &self,
        config: &[ExtensionConfig],
        present: &Present<'_>,
        occasion: Occasion,
    ) -> Result<Plan, InstallError> {
        let mut failures = Vec::new();
        let mut overruled = Vec::new();
        let mut versions = Vec::new();
        // All refusals are reported at once.
        let mut refused = Vec::new();
        for wanted in self.named(config).await? {
            let loaded = self.load_wanted(&wanted, present, &mut overruled).await;
            // The config's list is applied as a whole or not at all. Only a rescan keeps the last good version, because
            // no operator has started it.
            match tolerate(loaded, &wanted, present, occasion == Occasion::Rescan, &mut failures) {
                Ok(loaded) => versions.extend(loaded.map(|candidate| candidate.version)),
                Err(error) => refused.push(error),
            }
        }
        let mut candidates = Vec::new();
        for wanted in self.in_folder().await? {
            // A broken file in the folder affects only its own extension. A start still fails if that extension must
            // load.
            let is_tolerated = occasion != Occasion::Start || wanted.is_optional;
            let loaded = self.load_wanted(&wanted, present, &mut overruled).await;
            match tolerate(loaded, &wanted, present, is_tolerated, &mut failures) {
                Ok(loaded) => candidates.extend(loaded),
                Err(error) => refused.push(error),
            }
        }
        InstallError::unless_none(refused)?;
        if occasion == Occasion::Rescan {
            candidates.extend(self.vanished(present, &candidates, &mut failures));
        }
        // An added component has no source to read again, so it stays.
        let added = present.versions.iter().filter(|version| matches!(version.origin, Origin::Added { .. }));
        let added: Vec<Version> = added.cloned().collect();
        let Arrangement { versions, installed, refused } = arrange::arrange(&versions, candidates, &added)?;
        for (version, source) in refused {
            let must_load = version.settings.must_load();
            let origin = version.origin;
            let error = InstallError::Load { origin, source };
            // A start must not run a replacement either.
            if must_load && occasion == Occasion::Start {
                return Err(error);
            }
            failures.push(failed(&error));
        }
        Ok(Plan { versions, installed, failures, overruled })
    }

    /// Returns the installed components that must load, but whose files are missing from the managed folder. These
    /// components stay installed until a reload or a command of the operator removes them, because the folder may be
    /// unmounted for only a short time.
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

    /// Loads the version for a source. `None` if an operator has removed the extension and the source has not changed
    /// since.
    async fn load_wanted(
        &self,
        wanted: &SourceEntry,
        present: &Present<'_>,
        overruled: &mut Vec<OperatorOverride>,
    ) -> Result<Option<Candidate>, InstallError> {
        let SourceEntry { origin, settings, .. } = wanted;
        let wrong =
            |reason: &String| InstallError::Setting { origin: origin.clone(), key: "settings", reason: reason.clone() };
        let settings = settings.as_ref().map_err(wrong)?;
        let component = self.read(wanted).await?;
        let digest = component.digest;
        if settings.digest.as_ref().is_some_and(|named| *named != digest.to_string()) {
            let reason = format!("is another file by now, {digest}; put back the one that is named");
            return Err(InstallError::Setting { origin: origin.clone(), key: "component", reason });
        }
        // A decision applies only while the source has the same settings and digest as when it was made.
        let decision = present
            .overruled
            .iter()
            .find(|decision| decision.origin == *origin && decision.settings == *settings && decision.digest == digest);
        if let Some(decision) = decision {
            overruled.push(decision.clone());
            return Ok(decision.instead.clone().map(Candidate::unchanged));
        }
        let version = self.load(origin.clone(), settings.clone(), component, present.versions).await?;
        let is_new = present.versions.iter().all(|earlier| earlier.number != version.number);
        Ok(Some(Candidate { version, fallback: installed_from(wanted, present), is_new }))
    }

    /// Loads one component. If `there` has a version with the same source, settings, digest and grants, returns that
    /// version instead.
    pub(super) async fn load(
        &self,
        origin: Origin,
        settings: ExtensionConfig,
        component: ComponentBytes,
        there: &[Version],
    ) -> Result<Version, InstallError> {
        let installation = self.installation(&origin, &settings)?;
        if let Some(same) = same(&origin, &settings, component.digest, &installation, there) {
            // The lock may list fewer grants by now.
            check_accepted(&same, component.provenance.as_ref())?;
            return Ok(same);
        }
        let digest = component.digest.to_string();
        let kept = self.editions.as_ref().map(|editions| (editions, component.bytes.clone()));
        let version = self.compile((origin, settings), component, installation).await?;
        if let Some((editions, component)) = kept {
            editions.keep(&digest, &component).await?;
        }
        Ok(version)
    }

    /// Loads a component from the database of all processes, unless `there` has the version already.
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
        if is_reference(&settings.component) {
            let component = self.read_kept(&origin, &settings, &digest).await?;
            return self.compile((origin, settings), component, installation).await;
        }
        let component = editions.component(&digest).await?;
        // A stored component whose bytes do not match the digest counts as missing.
        let component = component.map(ComponentBytes::plain).filter(|component| component.digest.to_string() == digest);
        let component = component.ok_or_else(|| InstallError::NotKept { digest: digest.clone() })?;
        self.compile((origin, settings), component, installation).await
    }

    /// The current config of the process.
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
        component: ComponentBytes,
        installation: Installation,
    ) -> Result<Version, InstallError> {
        let ComponentBytes { digest, bytes, provenance } = component;
        let digest = digest.to_string();
        let manifest = match &provenance {
            Some(provenance) => Some(provenance.manifest.clone()),
            // The component of a shadow may be the one that its reference stands for.
            None => self.manifest_of(&origin, &settings, &digest).await?,
        };
        self.check_denied(&origin, &digest, manifest.as_deref())?;
        let refuse = |source: LoadError| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            InstallError::Load { origin: origin.clone(), source }
        };
        let accepted = provenance.as_ref().and_then(|provenance| provenance.accepted.as_deref());
        let loaded = self.runtime.load_accepted(origin.name(), bytes, installation, accepted).await;
        let extension = Arc::new(loaded.map_err(refuse)?);
        self.denied.add(&extension, manifest);
        self.check_steering(&origin, &extension)?;
        let number = self.loaded.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Ok(Version { number, extension, origin, settings, loaded_at: Timestamp::now() })
    }

    /// Checks that the operator denies neither the component nor its manifest.
    fn check_denied(&self, origin: &Origin, digest: &str, manifest: Option<&str>) -> Result<(), InstallError> {
        match self.denied.denial(digest, manifest) {
            Some(denial) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(InstallError::Denied { origin: origin.clone(), denial })
            }
            None => Ok(()),
        }
    }

    /// The digest of the manifest of a component that a reference of the config names.
    async fn manifest_of(
        &self,
        origin: &Origin,
        settings: &ExtensionConfig,
        digest: &str,
    ) -> Result<Option<String>, InstallError> {
        let (folder, component, digest) =
            (self.locations.config.clone(), settings.component.clone(), digest.to_owned());
        let read = move || denied::manifest(&folder, &component, &digest).map_err(io::Error::other);
        let unreadable = |error: io::Error| {
            let (origin, reason) = (origin.clone(), fault::text(&error));
            InstallError::Setting { origin, key: "component", reason }
        };
        blocking(read).await.map_err(unreadable)
    }

    /// Checks that the agent of this process can be steered, if the extension steers it. A guard that never runs is
    /// worse than a refusal.
    fn check_steering(&self, origin: &Origin, extension: &Extension) -> Result<(), InstallError> {
        match self.unsteered.filter(|_| extension.hooks().contains(&Hook::Steering)) {
            Some(reason) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let (origin, reason) = (origin.clone(), reason.to_owned());
                Err(InstallError::Setting { origin, key: "grants.agent-steps", reason })
            }
            None => Ok(()),
        }
    }
}

/// Checks an installed version against the grants that the operator has accepted for its component.
fn check_accepted(version: &Version, provenance: Option<&Provenance>) -> Result<(), InstallError> {
    let Some(Provenance { accepted: Some(accepted), .. }) = provenance else { return Ok(()) };
    let checked = version.extension.check_accepted(accepted);
    checked.map_err(|source| InstallError::Load { origin: version.origin.clone(), source })
}

/// Finds the version in `there` that has this source, these settings, this digest and these grants.
fn same(
    origin: &Origin,
    settings: &ExtensionConfig,
    digest: Digest,
    installation: &Installation,
    there: &[Version],
) -> Option<Version> {
    let is_same = |version: &&Version| {
        // Equal settings may refer to secrets that have changed.
        version.is_of(origin, settings, digest) && version.extension.has_grants(&installation.grants)
    };
    there.iter().find(is_same).cloned()
}

impl Loader {
    /// Loads a component as a shadow. The calls of the shadow and the calls of the installed version are counted apart.
    pub(super) async fn load_aside(
        &self,
        origin: &Origin,
        settings: &ExtensionConfig,
        component: Vec<u8>,
    ) -> Result<Arc<Extension>, InstallError> {
        let installation = self.installation(origin, settings)?;
        // Components have up to 32 MiB, so the digest is computed on a blocking thread.
        let read = move || Ok((Digest::of(&component).to_string(), component));
        let unreadable = |error: io::Error| {
            let (origin, reason) = (origin.clone(), fault::text(&error));
            InstallError::Setting { origin, key: "component", reason }
        };
        let (digest, component) = blocking(read).await.map_err(unreadable)?;
        let manifest = self.manifest_of(origin, settings, &digest).await?;
        self.check_denied(origin, &digest, manifest.as_deref())?;
        let loaded = self.runtime.aside().load_named(origin.name(), component, installation).await;
        let loaded = Arc::new(loaded.map_err(|source| InstallError::Load { origin: origin.clone(), source })?);
        self.denied.add(&loaded, manifest);
        self.check_steering(origin, &loaded)?;
        Ok(loaded)
    }
}

/// Why no extension can steer the agent of the config. `None` if extensions can, or if a program brings its own agent.
pub(super) fn unsteered(config: &ServedConfig) -> Option<&'static str> {
    match config.agent() {
        Ok(AgentConfig::Upstream { .. }) => Some(
            "the component steers the agent, but the agent is another server, and Annex does not call its model and \
             tools; leave the extension out, or use an agent of kind \"template\"",
        ),
        Ok(AgentConfig::Template(_) | AgentConfig::Script { .. }) | Err(_) => None,
    }
}

/// Sorts loaded versions into the order of installed extensions.
pub(super) fn in_order(versions: Vec<Version>) -> Result<Arrangement, InstallError> {
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

/// Handles the outcome of loading a source. If the source is broken and `is_tolerated` is true, notes the failure and
/// keeps the version that is installed from the source.
fn tolerate(
    loaded: Result<Option<Candidate>, InstallError>,
    wanted: &SourceEntry,
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

/// Finds the version that is installed from this source, even if the source's file has changed since.
fn installed_from(wanted: &SourceEntry, present: &Present<'_>) -> Option<Version> {
    let from_there: Vec<&Version> = present.versions.iter().filter(|version| version.origin == wanted.origin).collect();
    let is_same = |version: &&&Version| wanted.settings.as_ref().is_ok_and(|wanted| *wanted == version.settings);
    match from_there.as_slice() {
        [only] => Some((*only).clone()),
        // The config may have one component several times with different settings.
        several => several.iter().find(is_same).map(|version| (*version).clone()),
    }
}

/// Logs a failure and returns it for later queries.
pub(super) fn failed(error: &InstallError) -> Failure {
    let source = error.source_name();
    // The reason omits the excerpts of files in TOML errors. They may contain secrets, and the admin API shows the
    // reason.
    let reason = error.public_text();
    match error {
        InstallError::Config(config) => {
            for line in config.lines() {
                tracing::error!(source, "the config is not applied: {line}");
            }
        }
        _ => tracing::error!(source, "not installed; a version that was installed before stays: {reason}"),
    }
    Failure { source, reason, at: Timestamp::now() }
}

/// Runs file work on a blocking thread, so that a slow disk delays no request.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
}
