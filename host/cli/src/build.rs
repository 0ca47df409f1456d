//! `annex build`

use std::path::PathBuf;

use annex_authoring::Project;
use clap::Args;

use crate::{inspect, output, settings};

/// Build the component of a project
///
/// Runs the command of the project's language, makes a component of its output, and checks it as a server would.
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
        let built = annex_authoring::build(&project, |command| output::note(&format!("$ {command}"))).await?;
        output::note(&format!("built in {:.1} s", built.took.as_secs_f64()));
        let component = project.component();
        inspect::examine(&component, &component.to_string_lossy(), &built.component, settings, self.json).await
    }
}
