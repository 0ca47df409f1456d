//! `--with`: components that take the client's side of their extension.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use annex_client::{ComponentInterceptor, Interceptor};
use annex_protocol::{ExtensionUri, Json, JsonObject};
use annex_runtime::{Installation, Runtime, RuntimeConfig};
use annex_server::Locations;
use anyhow::{Context, ensure};
use clap::Args;

use crate::pretty::pretty;
use crate::{component, output, progress, serve, settings, state};

/// The components of `--with`.
#[derive(Args)]
pub(crate) struct With {
    /// Let a component take the client's side of its extension: a component file, or the name of a component that ships
    /// with Annex. INPUT is a JSON object or @FILE; default: the --state. May be repeated
    #[arg(long = "with", value_name = "COMPONENT[=INPUT]")]
    components: Vec<String>,
    /// A TOML file with the settings of a --with: the keys of `[[extension]]` without `component`. The first file is for
    /// the first --with, and so on
    #[arg(long = "with-settings", value_name = "FILE", requires = "components")]
    settings: Vec<PathBuf>,
}

/// The loaded components of `--with`.
#[derive(Default)]
pub(crate) struct Companions {
    /// The runtime, which interrupts components that loop.
    _runtime: Option<Runtime>,
    /// The interceptors of the components, each with the URI of the component's extension.
    interceptors: Vec<(ExtensionUri, Arc<dyn Interceptor>)>,
    notes: Notes,
}

/// The notes that components return for the user.
type Notes = Arc<Mutex<Vec<(ExtensionUri, Json)>>>;

impl With {
    /// Loads the components.
    ///
    /// # Errors
    /// When a component cannot be loaded or does not export the client's side.
    pub(crate) async fn load(&self, state: Option<&JsonObject>) -> anyhow::Result<Companions> {
        let wanted = self.components.len();
        let settings = self.settings.len();
        ensure!(settings <= wanted, "there are {settings} --with-settings for {wanted} --with");
        // Without components no runtime is started.
        let Ok(instances @ 1..) = u32::try_from(wanted) else { return Ok(Companions::default()) };
        let config = RuntimeConfig { instances, cache: serve::cache(), ..RuntimeConfig::default() };
        let runtime = Runtime::new(&config).context("the runtime of components does not start")?;
        let notes = Notes::default();
        let _progress = progress::of_compiling();
        let mut interceptors = Vec::new();
        for (index, argument) in self.components.iter().enumerate() {
            let settings = self.settings.get(index).map(PathBuf::as_path);
            let loaded = load(&runtime, argument, settings, state, &notes).await;
            interceptors.push(loaded.with_context(|| format!("--with {argument}"))?);
        }
        Ok(Companions { _runtime: Some(runtime), interceptors, notes })
    }
}

impl Companions {
    pub(crate) fn interceptors(&self) -> Vec<Arc<dyn Interceptor>> {
        self.interceptors.iter().map(|(_, interceptor)| Arc::clone(interceptor)).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.interceptors.is_empty()
    }

    /// True if one of the components takes the client's side of this extension.
    pub(crate) fn takes(&self, uri: &ExtensionUri) -> bool {
        self.interceptors.iter().any(|(other, _)| other == uri)
    }

    /// Prints the notes that components returned for the user.
    pub(crate) fn show_notes(&self) {
        for (uri, told) in self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            output::note(&format!("from     {uri}\n{}", pretty(told)));
        }
    }
}

async fn load(
    runtime: &Runtime,
    argument: &str,
    settings: Option<&Path>,
    state: Option<&JsonObject>,
    notes: &Notes,
) -> anyhow::Result<(ExtensionUri, Arc<dyn Interceptor>)> {
    // The input is JSON or a file and may have a `=` itself, so the first one ends the name.
    let (name, input) = argument.split_once('=').map_or((argument, None), |(name, input)| (name, Some(input)));
    let input = input.map(state::read_object).transpose()?;
    let input = input.as_ref().or(state).map(JsonObject::to_json).transpose()?;
    let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
    let bytes = component::named(name, &locations)?;
    let extension = runtime.load_named(name, bytes, installation(settings)?).await?;
    let notes = Arc::clone(notes);
    let tell = move |uri: &ExtensionUri, told| {
        notes.lock().unwrap_or_else(PoisonError::into_inner).push((uri.clone(), told));
    };
    let uri = extension.uri().clone();
    Ok((uri, Arc::new(ComponentInterceptor::new(Arc::new(extension), input, tell)?)))
}

fn installation(file: Option<&Path>) -> anyhow::Result<Installation> {
    let mut installation = settings::read(file)?.installation;
    // This side has no session and no task, so these grants let a component read nothing. They are given because the
    // half of the same component that a server runs imports these interfaces.
    installation.grants.session_state.get_or_insert_default();
    installation.grants.task = true;
    Ok(installation)
}
