//! `annex completions` and `annex man`: files that are generated from the commands' help.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;

/// Print a completion script for a shell
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex completions bash > ~/.local/share/bash-completion/completions/annex\n  annex \
                        completions zsh > ~/.zfunc/_annex\n  annex completions fish > ~/.config/fish/completions/annex.fish"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the script. `command` is the command of the whole program, `annex`.
    pub(crate) fn run(&self, mut command: Command) -> anyhow::Result<()> {
        let mut script = Vec::<u8>::new();
        clap_complete::generate(self.shell, &mut command, "annex", &mut script);
        output::write(&String::from_utf8(script).context("the completions are not UTF-8")?)
    }
}

/// Print the manual page, or write one for each command
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex man | man -l -\n  annex man ~/.local/share/man/man1\n\nWith a folder each command \
                        has a page of its own there: annex-serve.1, annex-tenant-add.1 and so on."
)]
pub(crate) struct Man {
    /// Write the pages of all commands into this folder, and create the folder if it is missing
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Man {
    /// Prints or writes the pages. `command` is the command of the whole program, `annex`.
    pub(crate) fn run(&self, command: Command) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else {
            let mut page = Vec::<u8>::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            return output::write(&String::from_utf8(page).context("the manual page is not UTF-8")?);
        };
        let write = || {
            fs::create_dir_all(folder)?;
            clap_mangen::generate_to(command, folder)
        };
        write().with_context(|| format!("cannot write the manual pages into {}", folder.display()))
    }
}
