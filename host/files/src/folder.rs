//! Folders.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::open::{apply, bits, user};
use crate::rule::{Attributes, Purpose};

/// Refuses a folder that the rule does not let be used for that purpose. What lies in it is not looked at. A link is
/// followed, except to a folder that this process itself has made.
///
/// # Errors
/// As opening has them; [`io::ErrorKind::PermissionDenied`] with the reason when the rule refuses it.
pub fn check_folder(path: &Path, purpose: Purpose) -> io::Result<()> {
    let mut flags = OFlags::DIRECTORY | OFlags::NONBLOCK;
    if purpose == Purpose::Private {
        // This process makes such folders itself, so a link was put there by somebody else.
        flags |= OFlags::NOFOLLOW;
    }
    let folder = OpenOptions::new().read(true).custom_flags(bits(flags)).open(path)?;
    let metadata = folder.metadata()?;
    apply(purpose.judge(Attributes::from(&metadata), user(), path), path)
}
