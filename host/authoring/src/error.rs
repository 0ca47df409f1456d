//! The errors of the crate, each with what can be done.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// A reason for which a project cannot be made, built or run.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// There is no project.
    #[error("there is no project here: cannot read {}; `annex new` makes one, --project names the folder of another", path.display())]
    NoProject {
        /// The manifest that was looked for.
        path: PathBuf,
        /// The fault.
        #[source]
        source: io::Error,
    },
    /// The manifest cannot be used.
    #[error("{}: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The key, and its fault.
        reason: String,
    },
    /// A new project would overwrite something.
    #[error("{} is there already; choose another name, or remove it", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder cannot be written or read.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: io::Error,
    },
    /// A program that builds the project is not installed.
    #[error("{program} is not installed: {how}")]
    MissingTool {
        /// The program.
        program: String,
        /// The way to get it.
        how: String,
    },
    /// A program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: String,
        /// The fault.
        #[source]
        source: io::Error,
    },
    /// A command of the project failed.
    #[error("`{command}` failed ({status}); its own words stand above")]
    Command {
        /// The command.
        command: String,
        /// Its end.
        status: ExitStatus,
    },
    /// The build made nothing.
    #[error("`{command}` succeeded and made no {}; build.output in annex-extension.toml names it", output.display())]
    NoOutput {
        /// The command.
        command: String,
        /// The file that it should have made.
        output: PathBuf,
    },
    /// No component can be made of what the build made.
    #[error("no component can be made of {}: {reason}", output.display())]
    Componentize {
        /// The file.
        output: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The bindings cannot be written.
    #[error("the bindings cannot be made from wit/: {reason}")]
    Bindings {
        /// The fault.
        reason: String,
    },
    /// A template is broken, which is a fault of this program.
    #[error("the template {file} cannot be filled in: {reason}")]
    Template {
        /// The file.
        file: String,
        /// The fault.
        reason: String,
    },
}

impl ProjectError {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
