//! Opens and reads files.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::rule::{Attributes, Purpose, Verdict};

/// The maximum number of paths that are remembered after a warning. Warnings about further paths are repeated.
const MAX_REMARKED: usize = 1_000;

/// Opens a regular file for reading, if the rule allows the file for this purpose. A symbolic link is followed and its target
/// is checked, except for [`Purpose::Private`]. Special files are refused, because opening a pipe could block.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with the reason if the rule refuses the file. Any other error of opening the file.
pub fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    // With `NONBLOCK`, opening a pipe without a writer returns at once. It is refused below.
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if purpose == Purpose::Private {
        // This process writes private files itself and never as links, so a link was created by another user.
        flags |= OFlags::NOFOLLOW;
    }
    let file = OpenOptions::new().read(true).custom_flags(bits(flags)).open(path).map_err(|error| {
        // Opening a socket fails with this error.
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) { no_file() } else { error }
    })?;
    // Attributes of the descriptor: the path may lead to another file by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(no_file());
    }
    apply(purpose.judge(Attributes::from(&metadata), user(), path), path)?;
    Ok(file)
}

/// Reads a file of at most `most` bytes, with the checks of [`open`].
///
/// # Errors
/// [`ErrorKind::FileTooLarge`] if the file has more than `most` bytes. Any other error of [`open`] or of reading the file.
pub fn read(path: &Path, purpose: Purpose, most: usize) -> io::Result<Vec<u8>> {
    let file = open(path, purpose)?;
    // Reads one byte more than allowed, to notice a file that is too large.
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let reason = match most >> 20 {
            0 => format!("it is larger than {most} bytes, the limit for this file"),
            mib => format!("it is larger than {mib} MiB, the limit for this file"),
        };
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Reads a text file as [`read`] does. A byte order mark (U+FEFF) at its beginning is removed.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if the file is not UTF-8. Any other error of [`read`].
pub fn read_text(path: &Path, purpose: Purpose, most: usize) -> io::Result<String> {
    let bytes = read(path, purpose, most)?;
    let text = String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(without_mark(text))
}

/// Removes a byte order mark (U+FEFF) from the beginning of the text.
#[must_use]
pub fn without_mark(text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(text) => text.to_owned(),
        None => text,
    }
}

/// Converts a refusal to an error. Logs a warning if none was logged for the path yet.
pub(crate) fn apply(verdict: Verdict, path: &Path) -> io::Result<()> {
    match verdict {
        Verdict::Fine => {}
        Verdict::Remark(remark) if is_first_remark(path) => tracing::warn!(path = %path.display(), "{remark}"),
        Verdict::Remark(_) => {}
        Verdict::Refused(reason) => return Err(io::Error::new(ErrorKind::PermissionDenied, reason)),
    }
    Ok(())
}

/// True if this is the first warning about the path. Files are read again with every change of the installed set, and
/// their warnings should not be repeated.
fn is_first_remark(path: &Path) -> bool {
    static REMARKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut remarked = REMARKED.lock().unwrap_or_else(PoisonError::into_inner);
    remarked.len() >= MAX_REMARKED || remarked.insert(path.to_owned())
}

/// The effective user id of this process.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Converts the flags to the integer type that the standard library uses.
pub(crate) fn bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn no_file() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a file")
}
