//! Checks and creates folders.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

use rustix::fs::OFlags;

use crate::open::{apply, bits, user};
use crate::rule::{Attributes, Purpose, Verdict};

/// Checks that a folder may be used for a purpose. The files in the folder are not checked. A symbolic link is followed, except
/// for [`Purpose::Private`].
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with the reason if the rule refuses the folder. Any other error of opening the folder.
pub fn check_folder(path: &Path, purpose: Purpose) -> io::Result<()> {
    let mut flags = OFlags::DIRECTORY | OFlags::NONBLOCK;
    if purpose == Purpose::Private {
        // This process creates private folders itself, so a link was created by another user.
        flags |= OFlags::NOFOLLOW;
    }
    let folder = OpenOptions::new().read(true).custom_flags(bits(flags)).open(path)?;
    let metadata = folder.metadata()?;
    apply(purpose.judge(Attributes::from(&metadata), user(), path), path)
}

/// The warning that the rule has about a file or folder; `None` if the rule has no warning. A symbolic link is followed.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with the reason if the rule refuses the file or folder. Any other error of reading its
/// attributes.
pub fn remark(path: &Path, purpose: Purpose) -> io::Result<Option<String>> {
    match purpose.judge(Attributes::from(&fs::metadata(path)?), user(), path) {
        Verdict::Fine => Ok(None),
        Verdict::Remark(remark) => Ok(Some(remark)),
        Verdict::Refused(reason) => Err(io::Error::new(ErrorKind::PermissionDenied, reason)),
    }
}

/// Creates the folder `inner` below `base`, including missing parents. No symbolic link below `base` is followed.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if `inner` leads out of `base`, or if one of the folders in `inner` is a symbolic link.
/// Any other error of creating a folder.
pub fn create_folders(base: &Path, inner: &Path) -> io::Result<()> {
    let mut path = base.to_owned();
    for part in inner.components() {
        match part {
            Component::CurDir => continue,
            Component::Normal(name) => path.push(name),
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                let reason = format!("{} leads out of {}", inner.display(), base.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, reason));
            }
        }
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_symlink() => {
                let reason =
                    format!("{} is a link, and nothing is written through links; put a folder there", path.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, reason));
            }
            // If this is not a folder, creating something in it fails later.
            Ok(_) => {}
            Err(_) => fs::create_dir(&path)?,
        }
    }
    Ok(())
}
