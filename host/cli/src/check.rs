//! `annex check`

use std::path::PathBuf;

use annex_server::Checked;
use anyhow::anyhow;
use clap::Args;

use crate::{output, serve};

/// Check a config without starting it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex check annex.toml\n  annex check annex.toml --load\n\nAll errors are shown at once, \
                        with file, line and what is accepted: those of the config, of the files of its tenants, and of \
                        the files and environment variables that they name. `annex serve` says the same. The command opens \
                        no port and makes no connections; `annex doctor` does."
)]
pub(crate) struct Check {
    /// The config, a TOML file
    config: PathBuf,
    /// Load the extensions too, to check their grants and parameters. Compiles components that are not in the cache
    #[arg(long)]
    load: bool,
}

impl Check {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let locations = serve::locations(&self.config);
        let checked = annex_server::check(&self.config, &locations).await?;
        if self.load {
            let failures = annex_server::check_extensions(&self.config, &locations).await?;
            let failures: Vec<String> = failures.into_iter().map(|error| format!("{:#}", anyhow!(error))).collect();
            match failures.as_slice() {
                [] => {}
                [only] => return Err(anyhow!("{only}")),
                several => return Err(anyhow!("{} errors\n{}", several.len(), several.join("\n"))),
            }
        }
        output::write(&self.report(&checked))
    }

    fn report(&self, checked: &Checked) -> String {
        let config = annex_text::line(&self.config.display().to_string()).into_owned();
        let tenants =
            if checked.tenants == 0 { String::new() } else { format!(", {}", count(checked.tenants, "tenant")) };
        let extensions = count(checked.extensions, "extension");
        let loaded = match (checked.extensions, self.load) {
            (0, _) => "",
            (_, true) => " All extensions were loaded.",
            (_, false) => " No extension was loaded; `--load` does that.",
        };
        format!("{config}: no errors ({extensions}{tenants}).{loaded}\n")
    }
}

fn count(number: usize, of: &str) -> String {
    if number == 1 { format!("1 {of}") } else { format!("{number} {of}s") }
}
