//! Creates a file that is written bit by bit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file with these permissions. With `in_place` a file or a link that is there is removed first; what it leads to
/// stays as it is.
///
/// # Errors
/// As creating and removing have them: [`ErrorKind::AlreadyExists`] without `in_place`, and where a folder or a device is.
pub fn create(path: &Path, mode: u32, in_place: bool) -> io::Result<File> {
    if in_place {
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_file() || there.is_symlink() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, "it is there and is not a file")),
            Err(_) => {}
        }
    }
    // A link that somebody else puts there in between must not be written through.
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}
