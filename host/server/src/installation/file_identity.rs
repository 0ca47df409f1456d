//! Tells whether a path leads to another file than before, or to one that has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The identity of a file, whatever links lead to it. A file that has another one has another content, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Changes also where a program sets the time of the last modification back, as `cp -p` does.
    changed: (i64, i64),
}

impl FileIdentity {
    /// The identity of the file that a path leads to in the end; `None` where there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}
