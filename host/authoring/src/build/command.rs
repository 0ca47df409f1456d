//! Runs the commands of a project.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{self, Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::tools;
use crate::error::ProjectError;
use crate::manifest::Project;

/// Runs one command in the project's folder. Its words go to standard error, because standard output is for those
/// of `annex` itself. Dropping the future ends the program.
pub(super) async fn run(project: &Project, words: &[String], say: impl Fn(&str)) -> Result<(), ProjectError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let command = words.join(" ");
    say(&command);
    let start = |source| ProjectError::Start { program: program.clone(), source };
    let output = io::stderr().as_fd().try_clone_to_owned().map_err(start)?;
    let status = Command::new(path_of(&project.folder, program))
        .args(arguments)
        .current_dir(&project.folder)
        .envs(&project.manifest.build.env)
        .stdin(Stdio::null())
        .stdout(output)
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                ProjectError::MissingTool { program: program.clone(), how: tools::how_to_get(program).to_owned() }
            }
            _ => ProjectError::Start { program: program.clone(), source },
        })?;
    if status.success() { Ok(()) } else { Err(ProjectError::Command { command, status }) }
}

/// A name is looked for on the `PATH`; a path is one in the project.
fn path_of(folder: &Path, program: &str) -> PathBuf {
    // Absolute, because the program starts in the folder.
    let inside = || path::absolute(folder.join(program)).unwrap_or_else(|_| folder.join(program));
    if program.contains('/') { inside() } else { PathBuf::from(program) }
}
