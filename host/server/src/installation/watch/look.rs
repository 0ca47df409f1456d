//! Polls files for changes, including changes behind links and mounts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::installation::file_identity::FileIdentity;

/// A file or folder to poll.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PolledPath {
    /// One file, such as a component.
    File(PathBuf),
    /// The managed folder, with its components and settings.
    Folder(PathBuf),
}

/// The state of a file or folder when it was polled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    file: Option<FileIdentity>,
    /// The device and the inode of a folder.
    folder: Option<(u64, u64)>,
    /// The components and settings in a folder.
    files: BTreeMap<OsString, Option<FileIdentity>>,
}

impl PolledPath {
    /// The present state of the file or folder. A missing file or folder has a state as well.
    pub(super) fn look(&self) -> Sight {
        match self {
            Self::File(path) => Sight { file: FileIdentity::of(path), ..Sight::default() },
            Self::Folder(path) => {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                let files = entries.map(|entry| entry.path()).filter(|path| is_installed(path));
                let files =
                    files.filter_map(|path| Some((path.file_name()?.to_owned(), FileIdentity::of(&path)))).collect();
                // Of the folder itself only the identity counts, because other files in it change as well.
                let folder = fs::metadata(path).ok().map(|folder| (folder.dev(), folder.ino()));
                Sight { file: None, folder, files }
            }
        }
    }
}

/// True if a file with this name in the managed folder is a component or its settings.
pub(super) fn is_installed(path: &Path) -> bool {
    let is_hidden = path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    !is_hidden && path.extension().is_some_and(|ending| ending == "wasm" || ending == "toml")
}
