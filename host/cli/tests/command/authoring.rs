//! The commands for authors. No toolchain is needed, because the builds in these tests copy components of this
//! repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Result;
use tempfile::TempDir;

use crate::support::{Run, annex};

mod bench;
mod build;
mod cases;
mod contract;
mod decisions;
mod dev;
mod new;
mod replay;
mod scenes;

/// A project named `tried` in a folder of its own.
struct Project {
    folder: TempDir,
}

impl Project {
    /// Creates a project. `build` is the text of its `[build]` table, and may continue with more tables.
    fn with(build: &str) -> Result<Self> {
        let project = Self { folder: tempfile::tempdir()? };
        project.write("annex-extension.toml", &format!("name = \"tried\"\nversion = \"0.1.0\"\n\n[build]\n{build}"))?;
        Ok(project)
    }

    /// A project whose build runs `script`, which writes `out.wasm`.
    fn of_script(script: &str) -> Result<Self> {
        Self::with(&format!("command = [\"sh\", \"-c\", {script:?}]\noutput = \"out.wasm\"\n"))
    }

    /// A project whose build copies `component`. `more` is the text of the tables after `[build]`.
    fn of(component: &str, more: &str) -> Result<Self> {
        Self::with(&format!("command = [\"cp\", {component:?}, \"out.wasm\"]\noutput = \"out.wasm\"\n{more}"))
    }

    /// Like [`Project::of`], but already built: its component is in place.
    fn built(component: &str, more: &str) -> Result<Self> {
        let project = Self::of(component, more)?;
        fs::copy(component, project.path("tried.wasm"))?;
        Ok(project)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(path, text)?)
    }

    fn read(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(self.path(name))?)
    }

    /// Runs `annex` with these arguments in the folder of the project.
    fn run(&self, arguments: &[&str]) -> Result<Run> {
        run_in(self.folder.path(), arguments)
    }
}

/// Runs `annex` with these arguments in a folder, without a terminal.
fn run_in(folder: &Path, arguments: &[&str]) -> Result<Run> {
    let output = annex(arguments).current_dir(folder).stdin(Stdio::null()).output()?;
    let out = String::from_utf8(output.stdout)?;
    let err = String::from_utf8(output.stderr)?;
    Ok(Run { code: output.status.code(), out, err })
}

/// Asserts that the command failed with exit code `code`, and that standard error contains each text of `expected`.
#[track_caller]
fn check_refused(run: &Run, code: i32, expected: &[&str]) {
    assert_eq!(run.code, Some(code), "{}{}", run.out, run.err);
    for expected in expected {
        assert!(run.err.contains(expected), "{expected:?} is not in: {}", run.err);
    }
}

/// The sorted paths of the files in `folder` and below. Subfolders that `left_out` names are skipped.
fn files_below(folder: &Path, left_out: &[&str]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_dir() {
            found.push(name);
        } else if !left_out.contains(&name.as_str()) {
            found.extend(files_below(&entry.path(), &[])?.iter().map(|inner| format!("{name}/{inner}")));
        }
    }
    found.sort();
    Ok(found)
}
