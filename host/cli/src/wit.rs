//! `annex wit`

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::output;

/// Write the contract between hosts and extensions
///
/// The folder gets the package `annex:extension`, and the packages of its dependencies in `deps`.
#[derive(Args)]
#[command(after_help = "Example:\n  annex wit wit")]
pub(crate) struct Wit {
    /// The folder to create
    folder: PathBuf,
}

impl Wit {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        annex_authoring::write_contract(&self.folder).context("cannot write the contract")?;
        output::note(&format!("annex:extension@{} is in {}", annex_authoring::VERSION, self.folder.display()));
        Ok(())
    }
}
