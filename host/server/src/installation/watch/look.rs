//! Looks at files and tells whether they are others than before, through whatever links and mounts lead to them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::installation::file_identity::FileIdentity;

/// A place that is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A file.
    File(PathBuf),
    /// The managed folder, with the components and settings in it.
    Folder(PathBuf),
}

/// What was seen at a place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    file: Option<FileIdentity>,
    /// The device and the number of a folder.
    folder: Option<(u64, u64)>,
    /// The files of a folder.
    files: BTreeMap<OsString, Option<FileIdentity>>,
}

impl Place {
    /// Looks at the place as it is now. What is not there is seen as such.
    pub(super) fn look(&self) -> Sight {
        match self {
            Self::File(path) => Sight { file: FileIdentity::of(path), ..Sight::default() },
            Self::Folder(path) => {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                let files = entries.map(|entry| entry.path()).filter(|path| is_installed(path));
                let files =
                    files.filter_map(|path| Some((path.file_name()?.to_owned(), FileIdentity::of(&path)))).collect();
                // Of the folder itself only which one it is: other files come and go in it.
                let folder = fs::metadata(path).ok().map(|folder| (folder.dev(), folder.ino()));
                Sight { file: None, folder, files }
            }
        }
    }
}

/// True for a file that is a component or the settings of one when it lies in the managed folder.
pub(super) fn is_installed(path: &Path) -> bool {
    let is_hidden = path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    !is_hidden && path.extension().is_some_and(|ending| ending == "wasm" || ending == "toml")
}
