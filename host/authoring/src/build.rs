//! A build: runs the commands of the language's tools, and then converts their output to a component in this process.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::contract;
use crate::error::ProjectError;
use crate::manifest::Project;

mod adapter;
mod bindings;
mod command;
mod component;
mod section;
mod segments;
mod tools;

/// A component that was built.
#[derive(Clone, Debug)]
pub struct BuiltComponent {
    /// The bytes of the component.
    pub component: Vec<u8>,
    /// The time that the build took, not counting the set-up commands.
    pub took: Duration,
}

impl BuiltComponent {
    /// Writes the component to its file. The file is replaced as a whole, so that no reader, such as a watching server,
    /// sees half a file.
    ///
    /// # Errors
    /// When the file cannot be written. The component of an earlier build then stays.
    pub fn place(&self, project: &Project) -> Result<(), ProjectError> {
        let path = project.component();
        annex_files::replace(&path, &self.component, 0o644).map_err(ProjectError::file(&path))
    }
}

/// Builds the component of a project. The output of the tools goes to standard error. `say` is called with each command
/// before that command runs.
///
/// # Errors
/// When a step fails. The error names the step.
pub async fn build(project: &Project, say: impl Fn(&str)) -> Result<BuiltComponent, ProjectError> {
    let build = &project.manifest.build;
    complete(project)?;
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
    make_folder_of(project, &build.output)?;
    command::run(project, &build.command, &say).await?;
    let made = fs::read(&output).map_err(|_| {
        let command = build.command.join(" ");
        ProjectError::NoOutput { command, output: build.output.clone() }
    })?;
    let component = component::of(project, &made, &section::of(project).await?)?;
    Ok(BuiltComponent { component, took: started.elapsed() })
}

/// Writes the contract into `wit/deps` if the project has a world and that folder is missing. The repository of the
/// project then needs no copy of the contract.
fn complete(project: &Project) -> Result<(), ProjectError> {
    let wit = project.folder.join("wit");
    if !wit.join("world.wit").exists() || wit.join("deps").symlink_metadata().is_ok() {
        return Ok(());
    }
    contract::write_dependencies(&project.folder, Path::new("wit")).map_err(ProjectError::file(&wit))
}

fn make_folder_of(project: &Project, file: &Path) -> Result<(), ProjectError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    annex_files::create_folders(&project.folder, folder).map_err(ProjectError::file(&project.folder.join(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_without_the_contract_gets_it_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = "name = \"a\"\nversion = \"0.1.0\"\n[build]\ncommand = [\"true\"]\noutput = \"a.wasm\"\n";
        fs::write(folder.path().join(crate::FILE), manifest).expect("a manifest");
        let project = Project::open(folder.path()).expect("a project");
        complete(&project).expect("nothing to do");
        assert!(!folder.path().join("wit").exists(), "a project without a world needs no contract");

        let wit = folder.path().join("wit");
        let world = "package my:a;\nworld extension {\n  export annex:extension/response@0.1.0;\n}\n";
        fs::create_dir(&wit).expect("a folder");
        fs::write(wit.join("world.wit"), world).expect("a world");
        complete(&project).expect("the contract");
        component::world(&project).expect("a world that is whole");

        let own = wit.join("deps").join("config.wit");
        fs::write(&own, "// the author's").expect("a file");
        complete(&project).expect("nothing to do");
        assert_eq!(fs::read_to_string(&own).expect("a file"), "// the author's");
    }
}
