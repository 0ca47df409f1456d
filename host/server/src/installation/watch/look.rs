//! Looks at files and tells whether they are others than before, through whatever links and mounts lead to them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    itself: Option<Identity>,
    /// The files of a folder.
    files: BTreeMap<OsString, Option<Identity>>,
}

/// A file that has another identity has another content, or may have.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Changes also where a program sets the time of the last modification back, as `cp -p` does.
    changed: (i64, i64),
}

impl Place {
    /// Looks at the place as it is now. What is not there is seen as such.
    pub(super) fn look(&self) -> Sight {
        match self {
            Self::File(path) => Sight { itself: identity(path), files: BTreeMap::new() },
            Self::Folder(path) => {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                let files = entries.map(|entry| entry.path()).filter(|path| is_installed(path));
                let files = files.filter_map(|path| Some((path.file_name()?.to_owned(), identity(&path)))).collect();
                // Other files come and go in it, so that its times and its size say nothing.
                let itself = fs::metadata(path).ok().map(|folder| Identity {
                    device: folder.dev(),
                    inode: folder.ino(),
                    size: 0,
                    modified: (0, 0),
                    changed: (0, 0),
                });
                Sight { itself, files }
            }
        }
    }
}

/// True for a file that is a component or the settings of one when it lies in the managed folder.
pub(super) fn is_installed(path: &Path) -> bool {
    let is_hidden = path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    !is_hidden && path.extension().is_some_and(|ending| ending == "wasm" || ending == "toml")
}

/// The identity of the file that a path leads to in the end; `None` where there is none.
fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|file| Identity::of(&file))
}

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}
