//! The errors of the crate, each with a remedy.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// The reason why a project cannot be created, built or run.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The folder has no project.
    #[error("there is no project here: cannot read {}; `annex new` makes one, --project names the folder of another", path.display())]
    NoProject {
        /// The path of the missing manifest.
        path: PathBuf,
        /// The error of reading the manifest.
        #[source]
        source: io::Error,
    },
    /// The manifest cannot be used.
    #[error("{}: {reason}", path.display())]
    Manifest {
        /// The path of the manifest.
        path: PathBuf,
        /// The key and its fault.
        reason: String,
    },
    /// A new project would overwrite a folder.
    #[error("{} is there already; choose another name, or remove it", path.display())]
    Exists {
        /// The path of the existing folder.
        path: PathBuf,
    },
    /// A file or folder cannot be written or read.
    #[error("{}", path.display())]
    File {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of reading or writing the file.
        #[source]
        source: io::Error,
    },
    /// A program that builds the project is not installed.
    #[error("{program} is not installed: {how}")]
    MissingTool {
        /// The name of the program.
        program: String,
        /// The instruction for installing the program.
        how: String,
    },
    /// A program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The name of the program.
        program: String,
        /// The error of starting the program.
        #[source]
        source: io::Error,
    },
    /// A command of the project failed.
    #[error("`{command}` failed ({status}); its output is above")]
    Command {
        /// The program with its arguments.
        command: String,
        /// The exit status of the command.
        status: ExitStatus,
    },
    /// The build has no output.
    #[error("`{command}` succeeded and made no {}; build.output in annex-extension.toml names it", output.display())]
    NoOutput {
        /// The program with its arguments.
        command: String,
        /// The path of the expected output.
        output: PathBuf,
    },
    /// The output of the build cannot be converted to a component.
    #[error("no component can be made of {}: {reason}", output.display())]
    Componentize {
        /// The path of the build's output.
        output: PathBuf,
        /// The reason why the output cannot be converted.
        reason: String,
    },
    /// The bindings cannot be written.
    #[error("the bindings cannot be made from wit/: {reason}")]
    Bindings {
        /// The reason why the bindings cannot be written.
        reason: String,
    },
    /// A template is broken, which is a bug of this program.
    #[error("the template {file} cannot be filled in: {reason}")]
    Template {
        /// The path of the template.
        file: String,
        /// The fault in the template.
        reason: String,
    },
}

impl ProjectError {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
