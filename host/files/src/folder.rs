//! Folders.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

use rustix::fs::OFlags;

use crate::open::{apply, bits, user};
use crate::rule::{Attributes, Purpose, Verdict};

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

/// The remark of the rule on a file or a folder that is used for that purpose, `None` where it has none. A link is followed.
///
/// # Errors
/// As looking at it has them; [`ErrorKind::PermissionDenied`] with the reason when the rule refuses it.
pub fn remark(path: &Path, purpose: Purpose) -> io::Result<Option<String>> {
    match purpose.judge(Attributes::from(&fs::metadata(path)?), user(), path) {
        Verdict::Fine => Ok(None),
        Verdict::Remark(remark) => Ok(Some(remark)),
        Verdict::Refused(reason) => Err(io::Error::new(ErrorKind::PermissionDenied, reason)),
    }
}

/// Makes the folder `inner` below `base`, with those in between. No link below `base` is followed.
///
/// # Errors
/// As making a folder has them; [`ErrorKind::InvalidInput`] where a link is, and when `inner` leads out of `base`.
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
            // Something else than a folder is refused when something is put into it.
            Ok(_) => {}
            Err(_) => fs::create_dir(&path)?,
        }
    }
    Ok(())
}
