//! The components that tenants which are added may name by their digests: those that the operator has named by their paths.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use annex_files::Purpose;
use annex_runtime::{Digest, MAX_COMPONENT_BYTES};

/// The components. Their files are digested when somebody asks, and again when they have changed.
pub(crate) struct AllowedComponents {
    files: Vec<PathBuf>,
    digested: Mutex<HashMap<PathBuf, (Stamp, String)>>,
}

/// Tells a file that has changed.
type Stamp = (Option<SystemTime>, u64);

impl AllowedComponents {
    pub(crate) fn new(files: impl Iterator<Item = PathBuf>) -> Self {
        Self { files: files.collect(), digested: Mutex::default() }
    }

    /// The file with the digest. It reads files, which may take a while.
    pub(crate) fn find(&self, digest: &str) -> Option<PathBuf> {
        self.files.iter().find(|file| self.digest(file).is_some_and(|of_file| of_file == digest)).cloned()
    }

    /// `None` where the file cannot be read, which is then no component that anybody can name.
    fn digest(&self, file: &Path) -> Option<String> {
        let stamp = stamp(file).ok()?;
        let known = self.digested.lock().unwrap_or_else(PoisonError::into_inner).get(file).cloned();
        if let Some((of_known, digest)) = known
            && of_known == stamp
        {
            return Some(digest);
        }
        let digest = Digest::of(&annex_files::read(file, Purpose::Named, MAX_COMPONENT_BYTES).ok()?).to_string();
        let mut digested = self.digested.lock().unwrap_or_else(PoisonError::into_inner);
        digested.insert(file.to_owned(), (stamp, digest.clone()));
        Some(digest)
    }
}

fn stamp(file: &Path) -> io::Result<Stamp> {
    let metadata = file.metadata()?;
    Ok((metadata.modified().ok(), metadata.len()))
}
