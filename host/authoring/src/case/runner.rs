//! Loads a component for its cases.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_protocol::{ExtensionUri, Secret};
use annex_runtime::{Extension, Hook, Installation, Runtime, RuntimeConfig, RuntimeError};
use toml::Table;

use super::file::{CaseError, CaseFile, CaseInputs};
use super::run::play;
use super::scene::{self, Scene};

/// Parses the settings of an installation. The text has the keys of an `[[extension]]` without `component`.
pub type ReadSettings<'a> = &'a (dyn Fn(&str) -> Result<Installation, String> + Sync);

/// Runs the cases of one component.
pub struct Runner<'a> {
    runtime: Runtime,
    component: &'a [u8],
    settings: &'a Table,
    read: ReadSettings<'a>,
    /// The URI and the hooks that the component had at its last load; `None` before the first load.
    loaded: Mutex<Option<(ExtensionUri, Vec<Hook>)>>,
}

impl<'a> Runner<'a> {
    /// Creates a runner for `component`. `settings` are the keys of an `[[extension]]` without `component`, and `read`
    /// parses them. Compiled components are stored in `cache`.
    ///
    /// # Errors
    /// When the runtime does not start.
    pub fn new(
        component: &'a [u8],
        settings: &'a Table,
        read: ReadSettings<'a>,
        cache: Option<PathBuf>,
    ) -> Result<Self, RuntimeError> {
        Self::with(&config(cache), component, settings, read)
    }

    /// Creates a runner as [`Self::new`] does, but with the given config of the runtime.
    pub(super) fn with(
        config: &RuntimeConfig,
        component: &'a [u8],
        settings: &'a Table,
        read: ReadSettings<'a>,
    ) -> Result<Self, RuntimeError> {
        // While a component is loaded there is no case yet. Its HTTP requests then fail, and its time and random
        // numbers are the same in each run.
        let config = RuntimeConfig { overrides: scene::nowhere(), ..config.clone() };
        Ok(Self { runtime: Runtime::new(&config)?, component, settings, read, loaded: Mutex::default() })
    }

    /// The URI of the extension; `None` before the component is loaded.
    #[must_use]
    pub fn uri(&self) -> Option<ExtensionUri> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(uri, _)| uri.clone())
    }

    /// True if the component was loaded and has no such hook.
    pub(super) fn lacks(&self, hook: Hook) -> bool {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().is_some_and(|(_, hooks)| !hooks.contains(&hook))
    }

    /// Loads the component with the runner's settings, without the inputs of a case.
    pub(crate) async fn extension(&self) -> Result<Extension, CaseError> {
        self.load(&CaseInputs::default()).await
    }

    /// Runs a case and returns the outcome as a table.
    pub(super) async fn outcome(&self, case: &CaseFile) -> Result<Table, CaseError> {
        let extension = Arc::new(self.load(&case.given).await?);
        let scene = Arc::new(Scene::of(&case.given, extension.uri()).await?);
        let mut outcome = play(&case.given, &extension, &scene).await?;
        outcome.look_back(&extension, &scene).await;
        Ok(outcome.into_table())
    }

    pub(super) async fn load(&self, given: &CaseInputs) -> Result<Extension, CaseError> {
        let parameters = &given.parameters;
        let mut settings = self.settings.clone();
        let secrets = take_secrets(&mut settings);
        if !parameters.is_empty() {
            let own = settings.entry("parameters").or_insert_with(|| Table::new().into());
            let own = own.as_table_mut().ok_or_else(|| CaseError::Settings("parameters is no table".to_owned()))?;
            own.extend(parameters.clone());
        }
        let mut installation = (self.read)(&settings.to_string()).map_err(CaseError::Settings)?;
        for name in secrets {
            let value = given.secrets.get(&name).map_or(STAND_IN, String::as_str);
            installation.grants.secrets.insert(name, Secret::new(value));
        }
        let extension = self.runtime.load(self.component.to_vec(), installation).await?;
        let loaded = (extension.uri().clone(), extension.hooks().to_vec());
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(extension)
    }
}

/// The config of the runtime on an author's machine. It allows ten minutes for compiling, because a busy machine may
/// need minutes for an interpreter.
#[must_use]
pub fn config(cache: Option<PathBuf>) -> RuntimeConfig {
    let compile_time = Duration::from_secs(600);
    RuntimeConfig { instances: 4, cache, compile_time, debug_info: true, quarantine: false, ..RuntimeConfig::default() }
}

/// The placeholder for a secret without a value in the case.
const STAND_IN: &str = "a stand-in, because a case has no secrets but its own";

/// Removes the secrets from the settings and returns their names. The settings and the component may be untrusted, so
/// no file or environment variable may be read for a secret.
fn take_secrets(settings: &mut Table) -> Vec<String> {
    let secrets = settings.get_mut("grants").and_then(|grants| grants.as_table_mut()?.remove("secrets"));
    secrets.and_then(|secrets| Some(secrets.as_table()?.keys().cloned().collect())).unwrap_or_default()
}
