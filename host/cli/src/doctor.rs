//! `annex doctor`

use std::path::PathBuf;

use annex_server::{Finding, Gravity, advisories, examine};
use anyhow::bail;
use clap::Args;

use crate::color::Tint;
use crate::{output, serve};

/// The number of columns before the text of a finding.
const TEXT_COLUMN: usize = 22;

/// Check the surroundings of a server: files, databases, agents, the machine.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex doctor annex.toml\n\nThe output has a line for each check: ok, warning or error, and what to do. \
                        The command connects to databases and upstream agents, listens for a moment on the addresses of the \
                        config, and changes nothing. Run it as the server's user, in the server's folder and with its \
                        environment. An error makes the exit code 1."
)]
pub(crate) struct Doctor {
    /// The config, a TOML file
    config: PathBuf,
    /// Also list the known faults of the engine that no extension can reach, each with the reason
    #[arg(long)]
    advisories: bool,
}

impl Doctor {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut findings = examine(&self.config, &serve::locations(&self.config)).await;
        if self.advisories {
            findings.extend(advisories());
        }
        for finding in &findings {
            output::write(&row(finding))?;
        }
        let errors = findings.iter().filter(|finding| finding.gravity == Gravity::Error).count();
        match errors {
            0 => Ok(()),
            1 => bail!("1 error: the server would not start, or would not serve all that the config names"),
            _ => bail!("{errors} errors: the server would not start, or would not serve all that the config names"),
        }
    }
}

fn row(finding: &Finding) -> String {
    let Finding { gravity, about, text } = finding;
    let row = output::hanging(&format!("{gravity:<8} {about:<12} {}\n", annex_text::line(text)), TEXT_COLUMN);
    let word = gravity.to_string();
    let tint = match gravity {
        Gravity::Fine => Tint::Good,
        Gravity::Warning => Tint::Warning,
        Gravity::Error => Tint::Bad,
    };
    // The line was broken before it is coloured, because the escapes of a colour take no columns.
    format!("{}{}", tint.on_standard_output(&word), row.strip_prefix(&word).unwrap_or_default())
}
