//! `annex inspect`

use std::path::{Path, PathBuf};

use annex_registry::Reference;
use annex_runtime::{Installation, Runtime, RuntimeConfig};
use annex_server::Locations;
use anyhow::Context;
use clap::Args;

use crate::exit::Failure;
use crate::registry::RegistryArgs;
use crate::registry::difference::LockDifference;
use crate::registry::keys::SignerArgs;
use crate::registry::origin::{self, Origin, SignedComponent};
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
                  --settings settings.toml\n  annex inspect oci://registry.example/acme/redact:1.2 --key \
                  acme.pub\n\nThe component \
                        is loaded as `annex serve` loads it, with the settings in a file or without parameters, and \
                        with the grants that it needs.")]
pub(crate) struct Inspect {
    /// A path, the bare name of a component that ships with Annex, or a reference such as
    /// oci://registry.example/acme/redact:1.2
    component: String,
    /// Load the component with the settings in this TOML file: the keys of `[[extension]]` without `component`
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    signers: SignerArgs,
    /// Compare a component of a registry with the version in the annex.lock beside this config
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// The component that is inspected, with its names.
struct Subject {
    file: PathBuf,
    in_config: String,
    bytes: Vec<u8>,
    /// `None` if the component is no component of a registry.
    origin: Option<Origin>,
}

impl Inspect {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
        let subject = self.subject(&locations).await?;
        let settings = settings::read(self.settings.as_deref())?;
        let config = RuntimeConfig { instances: 1, ..RuntimeConfig::default() };
        let candidate = Candidate {
            file: &subject.file,
            in_config: &subject.in_config,
            bytes: &subject.bytes,
            settings: settings.table,
            origin: subject.origin,
        };
        let trial = examine(candidate, settings.installation, &config, self.json).await?;
        // The report is shown first, because it also tells why a component cannot be loaded.
        if trial.fits_a_config() {
            return Ok(());
        }
        trial.loaded.map(drop).context("the component cannot be loaded").map_err(|error| Failure::Refused.of(error))
    }

    /// Reads the component from its file or its registry.
    async fn subject(&self, locations: &Locations) -> anyhow::Result<Subject> {
        if annex_registry::is_reference(&self.component) {
            let reference = self.component.parse::<Reference>().map_err(|error| Failure::Usage.of(error))?;
            let mut component = origin::pull(&reference, &self.signers, &self.registry, "pulling").await?;
            component.list_sboms(&reference).await?;
            let SignedComponent { pulled, mut origin, .. } = component;
            if let Some(config) = &self.config {
                origin.locked = LockDifference::read(config, &reference, &origin.manifest)?;
            }
            let in_config = origin.reference.clone();
            let file = PathBuf::from(&in_config);
            return Ok(Subject { file, in_config, bytes: pulled.component, origin: Some(origin) });
        }
        if !self.signers.is_empty() {
            let option = if self.signers.keys.is_empty() { "--issuer" } else { "--key" };
            let text = format!("{option} is for components of registries, such as oci://registry.example/a");
            return Err(Failure::Usage.error(text));
        }
        if self.config.is_some() {
            let text = "--config is for components of registries, such as oci://registry.example/a";
            return Err(Failure::Usage.error(text));
        }
        let file = locations.component(&self.component);
        let bytes = component::named(&self.component, locations)?;
        Ok(Subject { in_config: self.in_config(&file, locations), file, bytes, origin: None })
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
    pub(crate) origin: Option<Origin>,
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
