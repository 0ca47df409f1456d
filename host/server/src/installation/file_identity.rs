//! Detects whether a path leads to another file than before, or to a file that has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The identity of a file. Symbolic links to the file are followed. Equal identities mean equal content. Different
/// identities mean that the content may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// The time of the last change of the inode. This time changes even if a program resets the modification time, as
    /// `cp -p` does.
    changed: (i64, i64),
}

impl FileIdentity {
    /// The identity of the file at `path`. Links are followed. `None` if no file exists.
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
