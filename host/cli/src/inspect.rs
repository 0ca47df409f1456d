//! `annex inspect`

use std::path::{Path, PathBuf};

use annex_runtime::{Installation, Runtime, RuntimeConfig};
use annex_server::Locations;
use anyhow::Context;
use clap::Args;

use crate::exit::Failure;
use crate::{component, output, progress, serve, settings};

mod report;
mod sample;
mod table;
pub(crate) mod trial;

use report::Report;
use trial::Trial;

/// Show what a component is, what it needs and how to install it.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex inspect state-injection\n  annex inspect ./my-extension.wasm \
                  --settings settings.toml\n\nThe component \
                        is loaded as `annex serve` loads it, with the settings in a file or without parameters, and \
                        with the grants that it needs.")]
pub(crate) struct Inspect {
    /// A path, or the bare name of a component that ships with Annex
    component: String,
    /// Load the component with the settings in this TOML file: the keys of `[[extension]]` without `component`
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
        let path = locations.component(&self.component);
        let bytes = component::named(&self.component, &locations)?;
        let settings = settings::read(self.settings.as_deref())?;
        let config = RuntimeConfig { instances: 1, ..RuntimeConfig::default() };
        let candidate = Candidate {
            file: &path,
            in_config: &self.in_config(&path, &locations),
            bytes: &bytes,
            settings: settings.table,
        };
        let trial = examine(candidate, settings.installation, &config, self.json).await?;
        // The report is shown first, because it also tells why a component cannot be loaded.
        if trial.fits_a_config() {
            return Ok(());
        }
        trial.loaded.map(drop).context("the component cannot be loaded").map_err(|error| Failure::Refused.of(error))
    }

    /// The component as a config names it: by its bare name or by an absolute path. The path is absolute because the
    /// config may be in any folder.
    fn in_config(&self, path: &Path, locations: &Locations) -> String {
        if path.starts_with(&locations.components) {
            return self.component.clone();
        }
        // The path is absolute, because nobody knows yet where the config will lie.
        path.canonicalize().unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
    }
}

/// A component to inspect.
pub(crate) struct Candidate<'a> {
    pub(crate) file: &'a Path,
    /// The component's name or path, as a config names it.
    pub(crate) in_config: &'a str,
    pub(crate) bytes: &'a [u8],
    /// The TOML of the settings with which the component is tried.
    pub(crate) settings: toml::Table,
}

/// Loads a component on trial, prints the report, and returns the trial, which tells whether the component loaded.
///
/// # Errors
/// When the file does not contain an extension.
pub(crate) async fn examine(
    candidate: Candidate<'_>,
    installation: Installation,
    config: &RuntimeConfig,
    json: bool,
) -> anyhow::Result<Trial> {
    // The default config has no compile cache, so that a component on trial leaves nothing on the disk.
    let runtime = Runtime::new(config)?;
    let _progress = progress::of_compiling();
    // The file is inspected before the trial, which runs it: a file that is not an extension is refused here.
    let inspected = runtime.inspect(candidate.bytes.to_vec()).await;
    let inspected = inspected.with_context(|| format!("{} is refused", candidate.file.display()));
    let inspected = inspected.map_err(|error| Failure::Refused.of(error))?;
    let trial = trial::load(&runtime, candidate.bytes, installation).await;
    let report = Report::new(candidate, inspected, &trial);
    if json {
        output::json(&serde_json::to_string(&report)?)?;
    } else {
        output::show(&table::of(&report)?)?;
    }
    Ok(trial)
}
