//! Runs the commands of a project.

use std::env;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{self, Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::tools;
use crate::error::ProjectError;
use crate::manifest::Project;

/// Environment variables from which compilers take flags and folders. Some variables, such as `RUSTFLAGS`, replace the
/// project's flags entirely. A machine sets these variables for its own processor.
const FLAGS: [&str; 18] = [
    "ASFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CCC_OVERRIDE_OPTIONS",
    "CFLAGS",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CPPFLAGS",
    "CXXFLAGS",
    "C_INCLUDE_PATH",
    "GOEXPERIMENT",
    "GOFLAGS",
    "LDFLAGS",
    "LIBRARY_PATH",
    "NODE_PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "RUSTFLAGS",
];

/// Runs a command in the project's folder. The command does not get this machine's compiler flags, so that only the
/// project's flags apply. Its output goes to standard error, because standard output belongs to `annex`. Dropping the
/// future ends the program.
pub(super) async fn run(project: &Project, words: &[String], say: impl Fn(&str)) -> Result<(), ProjectError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let command = words.join(" ");
    let left_out = left_out(project);
    say(&shown(&left_out, &command));
    let start = |source| ProjectError::Start { program: program.clone(), source };
    let output = io::stderr().as_fd().try_clone_to_owned().map_err(start)?;
    let mut process = Command::new(path_of(&project.folder, program));
    for name in &left_out {
        process.env_remove(name);
    }
    let status = process
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

/// The names of the environment variables of this machine that commands do not get. A variable that the project itself
/// sets is not in the result.
fn left_out(project: &Project) -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| is_flags(name) && !project.manifest.build.env.contains_key(name)).collect();
    names.sort();
    names
}

fn is_flags(name: &str) -> bool {
    let is_of_target = name.starts_with("CARGO_TARGET_") && name.ends_with("_RUSTFLAGS");
    FLAGS.contains(&name) || is_of_target || name.starts_with("CARGO_PROFILE_")
}

/// The command as a person types it in a shell, such as `env -u RUSTFLAGS cargo build`.
fn shown(left_out: &[String], command: &str) -> String {
    if left_out.is_empty() {
        return command.to_owned();
    }
    let names: String = left_out.iter().map(|name| format!(" -u {name}")).collect();
    format!("env{names} {command}")
}

/// The path of a program. A bare name is returned unchanged and is searched on the `PATH`. A name with a `/` is a path
/// relative to the project.
fn path_of(folder: &Path, program: &str) -> PathBuf {
    // Absolute, because the program starts in the folder.
    let inside = || path::absolute(folder.join(program)).unwrap_or_else(|_| folder.join(program));
    if program.contains('/') { inside() } else { PathBuf::from(program) }
}

#[cfg(test)]
mod tests {
    use super::{is_flags, shown};

    #[test]
    fn flags_of_each_language_are_the_machines_and_what_finds_tools_is_not() {
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_DEBUG",
            "CFLAGS",
            "CPATH",
            "GOFLAGS",
            "PYTHONPATH",
            "NODE_PATH",
        ] {
            assert!(is_flags(name), "{name}");
        }
        for name in
            ["PATH", "HOME", "CARGO_HOME", "RUSTC_WRAPPER", "NODE_OPTIONS", "GOPROXY", "HTTPS_PROXY", "TARGET_CFLAGS"]
        {
            assert!(!is_flags(name), "{name}");
        }
        assert_eq!(shown(&[], "cargo build"), "cargo build");
        assert_eq!(shown(&["CFLAGS".to_owned(), "RUSTFLAGS".to_owned()], "c d"), "env -u CFLAGS -u RUSTFLAGS c d");
    }
}
