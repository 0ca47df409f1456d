//! Writes files that commands create. An existing file is not changed.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, anyhow};

/// Creates a file with this content and mode. Removes the file again if it cannot be written whole.
///
/// # Errors
/// When the file exists or cannot be written.
pub(crate) fn write(file: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let mut created = create(file, mode)?;
    let written = created.write_all(content).inspect_err(|_| drop(fs::remove_file(file)));
    written.with_context(|| format!("cannot write {}", file.display()))
}

/// Creates an empty file with this mode.
///
/// # Errors
/// When the file exists or cannot be created.
pub(crate) fn create(file: &Path, mode: u32) -> anyhow::Result<File> {
    annex_files::create(file, mode, false).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(file),
        _ => anyhow!(error).context(format!("cannot write {}", file.display())),
    })
}

/// The error of a command whose file exists.
pub(crate) fn exists(file: &Path) -> anyhow::Error {
    anyhow!("{} is there already and stays as it is; name another file", file.display())
}
