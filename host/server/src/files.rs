//! Files that others may have put there.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Reads a file of at most `most` bytes, and nothing that is no file: a pipe would be waited for.
///
/// # Errors
/// As reading has them; [`ErrorKind::FileTooLarge`] beyond `most`.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let reason = match most >> 20 {
            0 => format!("it is larger than {most} bytes, the most that is loaded here"),
            mib => format!("it is larger than {mib} MiB, the most that is loaded here"),
        };
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}
