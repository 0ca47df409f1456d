//! A build: the language's own command, and then, in this process, what makes a component of its output.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::ProjectError;
use crate::manifest::Project;

mod adapter;
mod bindings;
mod command;
mod component;
mod segments;
mod tools;

/// A component that was built, and is in its place.
#[derive(Clone, Debug)]
pub struct Built {
    /// The component.
    pub component: Vec<u8>,
    /// The time that the build took, without the set-up.
    pub took: Duration,
}

/// Builds the component of a project and puts it in its place. The tools write to standard error; `say` is told each
/// command before it runs.
///
/// # Errors
/// Which step failed. The component of an earlier build stays then.
pub async fn build(project: &Project, say: impl Fn(&str)) -> Result<Built, ProjectError> {
    let build = &project.manifest.build;
    let is_set_up = build.setup_makes.as_ref().is_none_or(|made| project.folder.join(made).exists());
    if !is_set_up {
        for step in &build.setup {
            command::run(project, step, &say).await?;
        }
    }
    let started = Instant::now();
    if let Some(language) = build.bindings {
        bindings::write(project, language)?;
    }
    let output = project.folder.join(&build.output);
    make_folder_of(&output)?;
    command::run(project, &build.command, &say).await?;
    let made = fs::read(&output).map_err(|_| {
        let command = build.command.join(" ");
        ProjectError::NoOutput { command, output: build.output.clone() }
    })?;
    let component = component::of(project, &made)?;
    let path = project.component();
    // Nobody, a server that watches it for instance, reads half of it.
    annex_files::replace(&path, &component, 0o644).map_err(ProjectError::file(&path))?;
    Ok(Built { component, took: started.elapsed() })
}

fn make_folder_of(file: &Path) -> Result<(), ProjectError> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(ProjectError::file(folder))
}
