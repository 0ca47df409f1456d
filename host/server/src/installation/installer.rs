//! The installer. Nothing else changes the installed extensions.
//!
//! Every change is a transaction: read → inspect → check grants → compile → link → self-test → check the whole set →
//! make and sign the cards → swap. If a step fails, the last good edition stays. Changes run one after the other, and
//! no request waits for a change. If several processes serve the same agent, all must agree before any process swaps
//! (`agreed.rs`).

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_leases::editions::Consent;
use annex_operations::tasks::pins::Pins;
use annex_protocol::ExtensionUri;
use annex_registry::is_reference;
use annex_runtime::{Installed, Runtime};
use annex_telemetry::fault;
use annex_tenants::ComponentStore;
use tokio::sync::Notify;

use crate::config::served::ServedConfig;
use crate::config::{ConfigFile, ExtensionConfig};
use crate::installation::denied::DeniedComponents;
use crate::installation::issuer::Issuer;
use crate::installation::published::Publisher;
use crate::installation::shadow::Shadow;
use crate::installation::watch::{FileWatcher, Watch, WatchedFiles};
use crate::locations::Locations;
use crate::lock::LOCK_FILE;

mod additions;
mod agreed;
mod agreement;
mod arrange;
mod error;
mod folder;
mod history;
mod kept;
mod live;
mod loader;
mod prepared;
mod preview;
mod settings;
mod shadows;
mod sources;
mod standing;
mod trial;
mod version;

pub(crate) use agreement::{Agreement, HINT, Peers};
pub use error::InstallError;
pub(crate) use folder::Folder;
pub(crate) use history::{Action, Change, History};
pub(crate) use loader::Failure;
pub(crate) use sources::AddedComponent;
pub use version::Origin;
pub(crate) use version::Version;

use loader::{Loader, Occasion, OperatorOverride, Plan, Present};
use prepared::PreparedChange;

/// The maximum number of failures that are remembered, one per source.
const MAX_FAILURES: usize = 100;

/// The parts from which [`Installer::start`] makes an installer.
pub(crate) struct Parts {
    /// The tenant of the extensions. Empty for the agent of the config itself.
    pub(crate) tenant: String,
    pub(crate) runtime: Runtime,
    pub(crate) issuer: Issuer,
    pub(crate) locations: Locations,
    pub(crate) folder: Option<Folder>,
    pub(crate) pins: Arc<Pins>,
    /// The watcher of the process. `None` if files are not watched.
    pub(crate) watcher: Option<Arc<FileWatcher>>,
    /// The other processes that serve the same agent. `None` without a shared database.
    pub(crate) peers: Option<Peers>,
    /// The store of components that were uploaded for tenants. `None` if uploads are not possible.
    pub(crate) uploads: Option<Arc<dyn ComponentStore>>,
    /// The components that must not run, of the whole process.
    pub(crate) denied: Arc<DeniedComponents>,
}

/// Changes the installed extensions while requests run.
pub struct Installer {
    tenant: String,
    loader: Loader,
    issuer: Issuer,
    config_file: Option<ConfigFile>,
    pins: Arc<Pins>,
    publisher: Publisher,
    /// The agreement with the other processes that serve the agent. `None` if no other process serves the agent.
    agreement: Option<Arc<Agreement>>,
    /// Held during a change, so that changes run one after the other.
    door: tokio::sync::Mutex<()>,
    /// Held while an extension is asked for its live entry on the card, so that one extension is asked at a time.
    declaring: tokio::sync::Mutex<()>,
    state: Mutex<InstallerState>,
    /// The watch on the files. It begins before the files are first read, so that no change is missed. `None` if files
    /// are not watched, and after [`take_watch`](Self::take_watch).
    watch: Mutex<Option<Watch>>,
    /// Notified when other files than before may have to be watched.
    pub(crate) moved: Notify,
}

struct InstallerState {
    /// The `[[extension]]` tables of the config that this process has applied.
    config: Vec<ExtensionConfig>,
    /// The installed versions, in order.
    versions: Vec<Version>,
    overruled: Vec<OperatorOverride>,
    failures: Vec<Failure>,
    history: History,
    /// The shadows that run beside installed versions.
    shadows: HashMap<ExtensionUri, Arc<Shadow>>,
}

/// The outcome of a reload of the config.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    /// True if the reload changed anything: extensions, tenants or settings.
    pub changed: bool,
    /// The number of the current edition.
    pub edition: u64,
    /// True if the reload changed the installed extensions.
    pub extensions_changed: bool,
    /// The changed keys of the config that apply now. Keys of extensions are not listed.
    pub changed_keys: Vec<String>,
    /// The changed keys of the config that apply only after a restart, each with the reason.
    pub needs_restart: Vec<String>,
    /// The sources that could not be installed. All other changes were applied.
    pub failed: Vec<String>,
}

impl Installer {
    /// Loads the extensions of the config and the managed folder. If other processes serve the agent, loads the edition
    /// that all processes serve now.
    pub(crate) async fn start(config: &ServedConfig, parts: Parts) -> Result<Self, InstallError> {
        let Parts { tenant, runtime, issuer, locations, folder, pins, watcher, peers, uploads, denied } = parts;
        let of_process = &config.process.runtime;
        let process = Mutex::new(Arc::clone(&config.process));
        let loaded = AtomicU64::new(0);
        let refused = AtomicU64::new(0);
        let editions = peers.as_ref().map(|peers| Arc::clone(&peers.editions));
        let unsteered = loader::unsteered(config);
        let trust = config.trust.clone();
        let loader = Loader {
            runtime,
            locations,
            folder,
            process,
            trust,
            loaded,
            refused,
            editions,
            uploads,
            unsteered,
            denied,
        };
        // The watch begins before the files are read, so that no change in between is missed.
        let watch = watcher.map(|watcher| Watch::begin(&watcher, watched(&config.extensions, &loader)));
        let agreement = peers.map(|peers| Arc::new(Agreement::new(peers)));
        let nothing = Present { versions: &[], overruled: &[] };
        let plan: Plan = match &agreement {
            None => loader.plan(&config.extensions, &nothing, Occasion::Start).await?,
            Some(_) => loader::in_order(Vec::new())?.into(),
        };
        let Plan { versions, installed, failures, .. } = plan;
        // Tasks can pin only versions that the pins know, so the pins learn the versions before any turn runs.
        pins.thin_out(&tenant, &installed);
        let cards = issuer.cards(&installed).map_err(|error| InstallError::Cards(error.into()))?;
        // With several processes, the number comes from their database and starts at 1.
        let published = issuer.publish(installed, u64::from(agreement.is_none()), cards, None);
        let mut history = History::new(of_process.keep_versions);
        history.record(published.extensions.number, Action::Loaded, Vec::new(), &versions);
        let config_file = config.file.clone();
        let (config_extensions, overruled) = (config.extensions.clone(), Vec::new());
        let shadows = HashMap::new();
        let state = InstallerState { config: config_extensions, versions, overruled, failures, history, shadows };
        let installer = Self {
            tenant,
            loader,
            issuer,
            config_file,
            pins,
            publisher: Publisher::new(published),
            agreement,
            door: tokio::sync::Mutex::new(()),
            declaring: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
            watch: Mutex::new(watch),
            moved: Notify::new(),
        };
        // The future is boxed because it is large and would otherwise be part of the future of a start.
        Box::pin(installer.begin_agreed(&config.extensions)).await?;
        Ok(installer)
    }

    /// Loads the edition that all processes serve now. Does nothing if no other process serves the agent.
    async fn begin_agreed(&self, config: &[ExtensionConfig]) -> Result<(), InstallError> {
        let Some(agreement) = &self.agreement else { return Ok(()) };
        self.publisher.sets().bar(agreement.as_bar());
        self.converge(agreement, config, Occasion::Start).await?;
        self.join(agreement).await
    }

    /// The tenant of the extensions. Empty for the agent of the config itself.
    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Reads the config file and the managed folder again and installs their extensions. An extension that an operator
    /// has removed is installed again if the config or the folder still has it. A version that was rolled back to stays
    /// until its source changes.
    ///
    /// # Errors
    /// When the config is invalid or one of its extensions does not load. In that case nothing has changed.
    pub async fn reload(&self) -> Result<ReloadOutcome, InstallError> {
        // An async mutex, because a change holds it while it waits for disks and compilers.
        let _door = self.door.lock().await;
        let running = self.config_file.as_ref().ok_or(InstallError::NoFile);
        let reloaded = match running.and_then(|running| running.read_again().map_err(InstallError::Config)) {
            Ok((file, extensions)) => self.try_reload(&file, extensions).await,
            Err(error) => Err(error),
        };
        reloaded.inspect_err(|error| self.note(error))
    }

    /// Makes the cards again after a change of the agent's own card.
    pub(crate) async fn reissue(&self) {
        let _door = self.door.lock().await;
        if let Some(agreement) = &self.agreement {
            if let Err(error) = self.reissue_agreed(agreement).await {
                fault::log(&error);
            }
            return;
        }
        let current = self.publisher.current();
        match self.issuer.issue(current.extensions.installed.clone(), Some(&current)) {
            Ok(published) => self.publisher.replace(published),
            // The previous cards stay. They declare the same extensions.
            Err(error) => fault::log(&error),
        }
    }

    /// Reads the files of all extensions again, after some of them have changed. A broken file does not change the
    /// extension to which it belongs.
    pub(crate) async fn rescan(&self) {
        let _door = self.door.lock().await;
        let config = self.lock().config.clone();
        if let Err(error) = self.refresh(config, Occasion::Rescan).await {
            self.note(&error);
        }
    }

    async fn refresh(&self, config: Vec<ExtensionConfig>, occasion: Occasion) -> Result<bool, InstallError> {
        if let Some(agreement) = &self.agreement {
            let changed = self.converge(agreement, &config, occasion).await?;
            let mut state = self.lock();
            (state.config, state.failures) = (config, Vec::new());
            drop(state);
            self.moved.notify_one();
            return Ok(changed);
        }
        // The versions are cloned, because the lock on the state must not be held during loading.
        let (versions, mut overruled) = {
            let state = self.lock();
            (state.versions.clone(), state.overruled.clone())
        };
        // A reload brings removed extensions back. A rollback stays until its source changes.
        if occasion == Occasion::Reload {
            overruled.retain(|decision| decision.instead.is_some());
        }
        let present = Present { versions: &versions, overruled: &overruled };
        let Plan { versions, installed, failures, overruled } = self.loader.plan(&config, &present, occasion).await?;
        let prepared = self.prepare(versions, installed)?;
        let changed = self.put(prepared, Action::Loaded);
        let mut state = self.lock();
        // Only a reload reads the config, so a rescan keeps the failure of the config.
        let of_config = state.failures.drain(..).filter(|failure| failure.source == error::OF_CONFIG);
        let of_config: Vec<Failure> = of_config.filter(|_| occasion == Occasion::Rescan).collect();
        state.failures = of_config.into_iter().chain(failures).collect();
        (state.config, state.overruled) = (config, overruled);
        drop(state);
        // The config may name other files now, which must be watched.
        self.moved.notify_one();
        Ok(changed)
    }

    /// Removes an extension. If its file is in the managed folder, deletes the file. An extension that the config names
    /// is installed again by the next reload.
    pub(crate) async fn remove(&self, uri: &ExtensionUri, consent: Consent) -> Result<Version, InstallError> {
        let _door = self.door.lock().await;
        let basis = self.basis(consent);
        let mut versions = self.lock().versions.clone();
        let place = versions.iter().position(|version| version.uri() == uri);
        let place = place.ok_or_else(|| InstallError::NotInstalled { id: uri.to_string() })?;
        let removed = versions.remove(place);
        let prepared = self.prepare_in_order(versions)?;
        match (&removed.origin, self.loader.folder.clone()) {
            (Origin::Folder { name }, Some(folder)) => {
                let path = folder.component(name);
                let name = name.clone();
                // The file is deleted first. If that fails, the extension stays installed.
                let deleted = loader::blocking(move || folder.remove(&name)).await;
                deleted.map_err(|source| InstallError::Folder { path, source })?;
            }
            // The config still names the extension, so the decision to remove it must be remembered.
            (Origin::Config { .. }, _) if self.agreement.is_none() => self.overrule(&removed, None),
            // No source names an added component, so nothing would bring it back.
            _ => {}
        }
        self.forgive(&removed.origin);
        self.put_in_force(prepared, Action::Removed, basis).await?;
        Ok(removed)
    }

    /// Installs a replaced version again: the version with the number `to`, or if `to` is `None` the version that was
    /// replaced last. The version stays until its source changes or the server restarts.
    pub(crate) async fn roll_back(&self, uri: &ExtensionUri, to: Option<u64>) -> Result<Version, InstallError> {
        let _door = self.door.lock().await;
        let basis = self.basis(Consent::OfAll);
        let (mut versions, kept) = {
            let state = self.lock();
            (state.versions.clone(), state.history.kept(uri, to))
        };
        let replaced = versions.iter_mut().find(|version| version.uri() == uri);
        let replaced = replaced.ok_or_else(|| InstallError::NotInstalled { id: uri.to_string() })?;
        let keep = self.lock().history.keep();
        let mut back = kept.ok_or_else(|| InstallError::NoVersion { uri: uri.to_string(), keep })?;
        back.check_in_service()?;
        // The version takes over the source of the version that it replaces.
        back.origin = replaced.origin.clone();
        let bad = std::mem::replace(replaced, back.clone());
        let prepared = self.prepare_in_order(versions)?;
        // An edition of several processes lists its versions, so no decision has to be remembered.
        if self.agreement.is_none() {
            self.overrule(&bad, Some(back.clone()));
        }
        self.put_in_force(prepared, Action::RolledBack, basis).await?;
        Ok(back)
    }

    /// Writes a component into the managed folder. Does nothing without a managed folder.
    async fn write(&self, name: &str, component: Vec<u8>, settings: Option<String>) -> Result<(), InstallError> {
        let Some(folder) = self.loader.folder.clone() else { return Ok(()) };
        let (name, path) = (name.to_owned(), folder.component(name));
        let written = loader::blocking(move || folder.write(&name, &component, settings.as_deref())).await;
        written.map_err(|source| InstallError::Folder { path, source })
    }

    fn prepare_in_order(&self, versions: Vec<Version>) -> Result<PreparedChange, InstallError> {
        let plan = loader::in_order(versions)?;
        self.prepare(plan.versions, plan.installed)
    }

    fn prepare(&self, versions: Vec<Version>, installed: Installed) -> Result<PreparedChange, InstallError> {
        let published = self.issuer.issue(installed, Some(&self.publisher.current()));
        Ok(PreparedChange { versions, published: published.map_err(|error| InstallError::Cards(error.into()))? })
    }

    /// Applies a prepared change. Applying cannot fail. Returns false if the installed versions have not changed.
    fn put(&self, prepared: PreparedChange, action: Action) -> bool {
        let PreparedChange { versions, published } = prepared;
        let numbers = |versions: &[Version]| versions.iter().map(|version| version.number).collect::<Vec<_>>();
        let mut state = self.lock();
        // A version gets its number when it is loaded, so equal numbers mean equal versions.
        let is_same = numbers(&state.versions) == numbers(&versions);
        if is_same && self.agreement.is_none() {
            return false;
        }
        let old = std::mem::replace(&mut state.versions, versions);
        let InstallerState { versions, history, shadows, .. } = &mut *state;
        history.record(published.extensions.number, action, old, versions);
        // A shadow belongs to one version and ends with it.
        shadows.retain(|_, shadow| versions.iter().any(|version| shadow.is_of(&version.extension)));
        drop(state);
        // Requests take their extensions only from the publisher, so the state may be ahead for a moment.
        let installed = published.extensions.installed.clone();
        self.publisher.replace(published);
        // A pin requires that its URI is installed: removing an extension also removes it from waiting tasks.
        self.pins.thin_out(&self.tenant, &installed);
        !is_same
    }

    /// Remembers that `instead` is installed instead of `version` until the source of `version` changes. If `instead`
    /// is `None`, remembers that the extension was removed.
    fn overrule(&self, version: &Version, instead: Option<Version>) {
        let mut state = self.lock();
        // The version may itself replace another one. The earlier decision is then updated, because it records the
        // settings and digest of the source.
        let earlier = state
            .overruled
            .iter_mut()
            .find(|decision| decision.instead.as_ref().is_some_and(|instead| instead.number == version.number));
        match earlier {
            Some(decision) => decision.instead = instead,
            None => state.overruled.push(OperatorOverride {
                origin: version.origin.clone(),
                settings: version.settings.clone(),
                digest: version.extension.digest(),
                instead,
            }),
        }
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The files to watch.
    pub(crate) fn watched(&self) -> WatchedFiles {
        watched(&self.lock().config, &self.loader)
    }

    /// Takes the watch on the files. `None` if the watch was taken before or files are not watched.
    pub(crate) fn take_watch(&self) -> Option<Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn note(&self, error: &InstallError) {
        if let InstallError::Several(errors) = error {
            errors.iter().for_each(|error| self.note(error));
            return;
        }
        let failure = loader::failed(error);
        let mut state = self.lock();
        state.failures.retain(|earlier| earlier.source != failure.source);
        state.failures.push(failure);
        if state.failures.len() > MAX_FAILURES {
            state.failures.remove(0);
        }
    }

    /// Removes the failures of a source that was replaced or removed.
    fn forgive(&self, origin: &Origin) {
        let source = origin.to_string();
        self.lock().failures.retain(|failure| failure.source != source);
    }

    fn lock(&self) -> MutexGuard<'_, InstallerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watched(config: &[ExtensionConfig], loader: &Loader) -> WatchedFiles {
    let locations = &loader.locations;
    // A component of a registry changes with the lock.
    let named = config.iter().map(|ExtensionConfig { component, .. }| {
        if is_reference(component) { locations.config.join(LOCK_FILE) } else { locations.component(component) }
    });
    WatchedFiles::new(named, loader.folder.as_ref().map(Folder::path))
}
