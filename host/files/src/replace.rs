//! Writes a file as a whole.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes a file with these permissions, in place of one that may be there. No link is followed. If the process ends
/// meanwhile, the old one stays whole, and `PATH.new` may be left, which the next call removes.
///
/// # Errors
/// As removing, writing and renaming have them.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A link that somebody else puts there in between must not be written through.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    // The umask may have taken bits from the mode above.
    file.set_permissions(Permissions::from_mode(mode))?;
    let written = file.write_all(content).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}
