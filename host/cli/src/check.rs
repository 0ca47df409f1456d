//! `annex check`

use std::path::{Path, PathBuf};

use annex_server::{CheckReport, Counts};
use anyhow::anyhow;
use clap::Args;

use crate::{output, serve};

/// Check a config without starting it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex check annex.toml\n  annex check annex.toml --load\n  annex check annex.toml --tenant \
                        acme.toml\n\nAll errors are shown at once, \
                        with file, line and accepted values: errors in the config, in the files of its tenants, and in \
                        the files and environment variables that these name. `annex serve` shows the same errors. The command opens \
                        no port and makes no connections; `annex doctor` does."
)]
pub(crate) struct Check {
    /// The config, a TOML file
    #[arg(required_unless_present = "tenant")]
    config: Option<PathBuf>,
    /// Load the extensions too, to check their grants and parameters. Compiles components that are not in the cache
    #[arg(long, conflicts_with = "tenant")]
    load: bool,
    /// Check a tenant's file for `annex tenant add`. Without a config everything is checked but the secrets, hosts and
    /// components that the server lends
    #[arg(long, value_name = "FILE")]
    tenant: Option<PathBuf>,
}

impl Check {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match (&self.tenant, &self.config) {
            (Some(tenant), config) => check_tenant(tenant, config.as_deref()).await,
            (None, Some(config)) => self.check(config).await,
            // The parser asks for one of them.
            (None, None) => Ok(()),
        }
    }

    async fn check(&self, config: &Path) -> anyhow::Result<()> {
        let locations = serve::locations(config);
        let counts = counts(annex_server::check(config, &locations).await)?;
        if self.load {
            let failures = annex_server::check_extensions(config, &locations).await?;
            let failures: Vec<String> = failures.into_iter().map(|error| format!("{:#}", anyhow!(error))).collect();
            match failures.as_slice() {
                [] => {}
                [only] => return Err(anyhow!("{only}")),
                several => return Err(anyhow!("{} errors\n{}", several.len(), several.join("\n"))),
            }
        }
        let loaded = match (counts.extensions, self.load) {
            (0, _) => "",
            (_, true) => " All extensions were loaded.",
            (_, false) => " No extension was loaded; `--load` does that.",
        };
        report(config, counts, loaded)
    }
}

async fn check_tenant(tenant: &Path, config: Option<&Path>) -> anyhow::Result<()> {
    let locations = serve::locations(config.unwrap_or(Path::new("")));
    let counts = counts(annex_server::check_tenant_text(tenant, config, &locations).await)?;
    let left_out = match config {
        Some(_) => " No extension was loaded; `annex tenant add` does that.",
        None => " Name the server's config too, to check the secrets, hosts and components that it lends.",
    };
    report(tenant, counts, left_out)
}

/// Prints the warnings of a check, which a check with errors can have too. Then returns the counts, or the errors.
fn counts(checked: CheckReport) -> anyhow::Result<Counts> {
    for warning in &checked.warnings {
        output::warning(&warning.to_string());
    }
    Ok(checked.outcome?)
}

fn report(file: &Path, counts: Counts, more: &str) -> anyhow::Result<()> {
    let file = annex_text::line(&file.display().to_string()).into_owned();
    let tenants = if counts.tenants == 0 { String::new() } else { format!(", {}", count(counts.tenants, "tenant")) };
    let extensions = count(counts.extensions, "extension");
    output::write(&output::hanging(&format!("{file}: no errors ({extensions}{tenants}).{more}\n"), 2))
}

fn count(number: usize, of: &str) -> String {
    if number == 1 { format!("1 {of}") } else { format!("{number} {of}s") }
}
