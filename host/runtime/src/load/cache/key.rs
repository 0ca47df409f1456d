//! The key of the keyed digests: 32 random bytes in a file of the cache folder.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use annex_files::Purpose;
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

const FILE: &str = "key";
const BYTES: usize = 32;

/// Reads the key of a folder, or creates one. A key that others could have accessed is replaced, which invalidates
/// all files.
///
/// # Errors
/// The existing key can be neither used nor removed, or no random numbers are available.
pub(super) fn of(folder: &Path) -> io::Result<hmac::Key> {
    let file = folder.join(FILE);
    match read(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(%error, "the key of the compile cache is replaced, and what is cached compiled again");
            fs::remove_file(&file)?;
        }
        read => return read,
    }
    let mut key = [0; BYTES];
    SystemRandom::new().fill(&mut key).map_err(io::Error::other)?;
    match keep(folder, &file, &key) {
        // Another process may have created a key first. That key counts.
        Ok(()) => read(&file),
        Err(error) => {
            tracing::warn!(%error, "the key of the compile cache cannot be stored, so the next start compiles all components");
            Ok(hmac::Key::new(HMAC_SHA256, &key))
        }
    }
}

fn read(file: &Path) -> io::Result<hmac::Key> {
    let key = annex_files::read(file, Purpose::Private, BYTES)?;
    match key.len() {
        BYTES => Ok(hmac::Key::new(HMAC_SHA256, &key)),
        bytes => Err(io::Error::new(ErrorKind::InvalidData, format!("it has {bytes} bytes instead of {BYTES}"))),
    }
}

/// Writes the key into its file, unless the file exists.
fn keep(folder: &Path, file: &Path, key: &[u8]) -> io::Result<()> {
    super::write_aside(folder, &[key], |aside| {
        // Creating a hard link is atomic and fails if the file exists.
        match fs::hard_link(aside, file) {
            Ok(()) => fs::remove_file(aside),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(aside),
            // Some file systems have no hard links. The last writer wins there, and other processes compile again.
            Err(_) => fs::rename(aside, file),
        }
    })
}
