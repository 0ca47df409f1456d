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

/// Files and folders that are remembered as remarked on; beyond that each remark is logged again.
const MAX_REMARKED: usize = 1_000;

/// Opens a regular file for reading, if the rule lets it be used for that purpose. A link is followed, because the file
/// that it leads to is judged, except where this process itself has written the file. Special files are refused: a pipe
/// would be waited for.
///
/// # Errors
/// As opening has them; [`ErrorKind::PermissionDenied`] with the reason when the rule refuses it.
pub fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    // Only a pipe without a writer would wait, and it is refused below.
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if purpose == Purpose::Private {
        // This process writes such files itself and never as links, so a link was put there by somebody else.
        flags |= OFlags::NOFOLLOW;
    }
    let file = OpenOptions::new().read(true).custom_flags(bits(flags)).open(path).map_err(|error| {
        // What a socket answers.
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) { no_file() } else { error }
    })?;
    // Of the open descriptor, not of the path: the path may lead to another file by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(no_file());
    }
    apply(purpose.judge(Attributes::from(&metadata), user(), path), path)?;
    Ok(file)
}

/// Reads a file of at most `most` bytes that [`open`] lets be used.
///
/// # Errors
/// As [`open`] and reading have them; [`ErrorKind::FileTooLarge`] beyond `most`.
pub fn read(path: &Path, purpose: Purpose, most: usize) -> io::Result<Vec<u8>> {
    let file = open(path, purpose)?;
    // One byte more than allowed tells a file that is too large from one that just fits.
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let reason = match most >> 20 {
            0 => format!("it is larger than {most} bytes, the most that is loaded here"),
            mib => format!("it is larger than {mib} MiB, the most that is loaded here"),
        };
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// The same for text, without the mark (U+FEFF) that some editors put before it.
///
/// # Errors
/// As [`read`]; [`ErrorKind::InvalidData`] when it is not UTF-8.
pub fn read_text(path: &Path, purpose: Purpose, most: usize) -> io::Result<String> {
    let bytes = read(path, purpose, most)?;
    let text = String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(without_mark(text))
}

/// The text without the mark (U+FEFF) that some editors put before UTF-8.
#[must_use]
pub fn without_mark(text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(text) => text.to_owned(),
        None => text,
    }
}

/// Refuses, or logs a remark the first time that it is made about the path.
pub(crate) fn apply(verdict: Verdict, path: &Path) -> io::Result<()> {
    match verdict {
        Verdict::Fine => {}
        Verdict::Remark(remark) if is_first_remark(path) => tracing::warn!(path = %path.display(), "{remark}"),
        Verdict::Remark(_) => {}
        Verdict::Refused(reason) => return Err(io::Error::new(ErrorKind::PermissionDenied, reason)),
    }
    Ok(())
}

/// Files are read again with every change of what is installed, and nobody wants to hear it each time.
fn is_first_remark(path: &Path) -> bool {
    static REMARKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut remarked = REMARKED.lock().unwrap_or_else(PoisonError::into_inner);
    remarked.len() >= MAX_REMARKED || remarked.insert(path.to_owned())
}

/// The number of the user that this process acts as.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// As the standard library takes them.
pub(crate) fn bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn no_file() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a file")
}
