//! `annex doctor`

use std::path::PathBuf;

use annex_server::{Gravity, examine};
use anyhow::bail;
use clap::Args;

use crate::{output, serve};

/// Check the surroundings of a server: files, databases, agents, the machine.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex doctor annex.toml\n\nThe output has a line for each check: ok, warning or error, and what to do. \
                        The command connects to databases and upstream agents, and changes nothing. Run it as the \
                        server's user, in the server's folder and with its environment. An error makes the exit code 1."
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
