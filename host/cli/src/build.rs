//! `annex build`

use std::path::PathBuf;

use annex_authoring::Project;
use anyhow::Context;
use clap::Args;

use crate::exit::Failure;
use crate::inspect::{self, Candidate, trial};
use crate::{notes, output, progress, serve, settings};

/// Build the component of a project
///
/// Runs the build command of the project's language, makes a component from the output, and checks the component as a
/// server would.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex build\n\nThe component is NAME.wasm in the folder of the project. The commands \
                        are in annex-extension.toml."
)]
pub(crate) struct Build {
    /// The folder of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Print the report on the component as JSON
    #[arg(long)]
    json: bool,
}

impl Build {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let project = Project::open(&self.project)?;
        let settings = settings::of_project(&project)?;
        let building = progress::of("building");
        let built = annex_authoring::build(&project, |command| output::note(&format!("$ {command}"))).await?;
        drop(building);
        output::note(&format!("built in {:.1} s", built.took.as_secs_f64()));
        for path in project.unwatchable() {
            output::note(&format!("build.watch names {}, which is not there", path.display()));
        }
        let component = project.component();
        // Compiled with the same settings as for `annex test` and for a server, so that both find the code in the
        // cache.
        let config = annex_authoring::runtime_config(serve::cache());
        let granted = settings.installation.grants.clone();
        // An absolute path is right wherever the config lies.
        let folder = project.folder.canonicalize().unwrap_or_else(|_| project.folder.clone());
        let name = format!("{}.wasm", project.manifest.name);
        let in_config = folder.join(name);
        let candidate = Candidate {
            file: &component,
            in_config: &in_config.to_string_lossy(),
            bytes: &built.component,
            settings: settings.table,
            origin: None,
        };
        let trial = inspect::examine(candidate, settings.installation, &config, self.json).await?;
        if let Ok(extension) = &trial.loaded {
            notes::on_uri(extension.uri().as_str());
        }
        trial
            .loaded
            .map(drop)
            .context("no host would load the component with the settings of annex-extension.toml")
            .map_err(|error| Failure::Refused.of(error))?;
        let given = trial::in_config(&granted);
        let missing: Vec<String> =
            trial::in_config(&trial.grants).into_iter().filter(|grant| !given.contains(grant)).collect();
        if !missing.is_empty() {
            return Err(Failure::Refused.error(format!(
                "the component needs grants that the project does not give it: add `{}` to [settings.grants] in \
                 annex-extension.toml",
                missing.join("`, `")
            )));
        }
        // Last, so that the component of an earlier build stays if the new one cannot be used.
        built.place(&project)?;
        Ok(())
    }
}
