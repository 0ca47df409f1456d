//! `annex init`

use std::path::PathBuf;

use clap::Args;

use crate::{new_file, output};

/// A config with every key. The few keys that a start needs are set, and all others are comments.
const CONFIG: &str = include_str!("init/annex.toml");

/// The permissions of the new file. Everyone may read it, because a config contains no secrets.
const MODE: u32 = 0o644;

/// Write a config file that lists every key, as comments with their defaults.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex init\n  annex init agents/specialist.toml\n\nThe config loads as it is: an agent \
                        that answers by a rule. An existing file is not changed."
)]
pub(crate) struct Init {
    /// The file to write
    #[arg(default_value = "annex.toml")]
    file: PathBuf,
}

impl Init {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        new_file::write(&self.file, CONFIG.as_bytes(), MODE)?;
        let shown = annex_text::line(&self.file.display().to_string()).into_owned();
        output::write(&format!("Wrote {shown}. Next:\n  annex check {shown}\n  annex serve {shown}\n"))
    }
}
