//! Creates files that a process writes piece by piece.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file with mode `mode` for writing. With `in_place`, an existing file or symbolic link at `path` is
/// removed first; the target of a link is not touched.
///
/// # Errors
/// Those of creating and removing files. [`ErrorKind::AlreadyExists`] if the path exists and `in_place` is false, or
/// if the path is a folder or a device.
pub fn create(path: &Path, mode: u32, in_place: bool) -> io::Result<File> {
    if in_place {
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_file() || there.is_symlink() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, "the path exists and is not a file")),
            Err(_) => {}
        }
    }
    // `create_new` refuses a symbolic link that another user created in between.
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}
