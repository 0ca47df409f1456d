//! `annex inspect`

use std::fs;
use std::path::{Path, PathBuf};

use annex_protocol::JsonObject;
use annex_runtime::{
    Extension, GrantNeeded, Grants, Inspection, Installation, Limits, LoadError, Runtime, RuntimeConfig, RuntimeError,
};
use annex_server::Locations;
use anyhow::{Context, anyhow};
use clap::Args;

use crate::{output, serve};

mod grants;
mod report;
mod text;

use report::Report;

/// Show what a component is, what it needs and how to install it.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex inspect state-injection\n  annex inspect ./my-extension.wasm\n\nThe component \
                        is loaded as `annex serve` would load it, with the grants that it asks for and without \
                        parameters.")]
pub(crate) struct Inspect {
    /// A path, or the bare name of a component that ships with Annex
    component: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Why a component could not be asked what it is.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("cannot start the component runtime")]
    Runtime(#[from] RuntimeError),
    #[error("the component cannot be loaded")]
    Load(#[from] LoadError),
}

impl Inspect {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
        let path = locations.component(&self.component);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let inspection = Inspection::of(&bytes).with_context(|| format!("{} is refused", path.display()))?;
        let (grants, loaded) = load(&bytes, &inspection).await;
        let mut report = Report::new(&path, &inspection);
        match &loaded {
            Ok(extension) => report.add_descriptor(extension.descriptor(), self.in_config(&path), &grants),
            Err(error) => report.problem = Some(format!("{:#}", anyhow!("{}", chain(error)))),
        }
        let text = if self.json { serde_json::to_string(&report)? + "\n" } else { text::of(&report)? };
        output::show(&text)?;
        match loaded {
            Err(error) if !wants_parameters(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// How a config names the component, wherever the config lies.
    fn in_config(&self, path: &Path) -> String {
        if path.parent() == Some(&serve::components()) {
            return self.component.clone();
        }
        path.canonicalize().unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
    }
}
