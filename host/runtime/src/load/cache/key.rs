//! The key of the digests: 32 random bytes in a file of the cache's folder, made once.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use annex_files::Purpose;
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

const FILE: &str = "key";
const BYTES: usize = 32;

/// The key of this folder. One that is missing is made, and so is one that others could have read or written: what was
/// kept under it is compiled again.
///
/// # Errors
/// When there is one that can be neither used nor removed, or no random numbers are to be had.
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
        // Another process may have been faster, and its key counts.
        Ok(()) => read(&file),
        Err(error) => {
            tracing::warn!(%error, "the compile cache cannot keep its key, so nothing is found in it at the next start");
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

/// Puts the key into its file, unless another one is there.
fn keep(folder: &Path, file: &Path, key: &[u8]) -> io::Result<()> {
    super::write_aside(folder, &[key], |aside| {
        // A link is made only where nothing is, and all at once.
        match fs::hard_link(aside, file) {
            Ok(()) => fs::remove_file(aside),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(aside),
            // Some file systems have no links. Whoever comes last counts there, and the others compile again.
            Err(_) => fs::rename(aside, file),
        }
    })
}
