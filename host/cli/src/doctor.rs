//! `annex doctor`

use std::path::PathBuf;

use annex_server::{Gravity, examine};
use anyhow::bail;
use clap::Args;

use crate::{output, serve};

/// Check the surroundings of a server: files, databases, agents, the machine.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex doctor annex.toml\n\nA line for each thing: ok, warning or error, and what to do. \
                        Databases and agents elsewhere are asked, and nothing is changed. It is to be run as the user, \
                        in the folder and with the environment that the server has. The exit status is not 0 where there \
                        is an error."
)]
pub(crate) struct Doctor {
    /// The config, a TOML file
    config: PathBuf,
}

impl Doctor {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let findings = examine(&self.config, &serve::locations(&self.config)).await;
        for finding in &findings {
            let text = annex_text::line(&finding.text);
            output::write(&format!("{:<8} {:<12} {text}\n", finding.gravity, finding.about))?;
        }
        let errors = findings.iter().filter(|finding| finding.gravity == Gravity::Error).count();
        match errors {
            0 => Ok(()),
            1 => bail!("1 error: the server would not start, or would not serve all that the config names"),
            _ => bail!("{errors} errors: the server would not start, or would not serve all that the config names"),
        }
    }
}
