//! Replaces a file atomically.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes a file with mode `mode`, which replaces an existing file. No symbolic link is followed. If the process ends
/// during the call, the old file stays complete. `PATH.new` may then remain, and the next call removes it.
///
/// # Errors
/// Those of removing, writing and renaming files.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` refuses a symbolic link that another user created in between.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    // The umask may have removed bits of the mode above.
    file.set_permissions(Permissions::from_mode(mode))?;
    let written = file.write_all(content).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}
