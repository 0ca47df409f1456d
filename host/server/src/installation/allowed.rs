//! The component files that added tenants may use. The operator lists the paths of these files in the config. The text
//! of a tenant names a component by its digest.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use annex_files::Purpose;
use annex_registry::is_reference;
use annex_runtime::{Digest, MAX_COMPONENT_BYTES};

use crate::config::{Config, ExtensionConfig};
use crate::installation::file_identity::FileIdentity;
use crate::locations::Locations;

/// The allowed components. The digest of a file is computed when a lookup needs it, and again after a change of the
/// file.
pub(crate) struct AllowedComponents {
    files: Vec<PathBuf>,
    digested: Mutex<HashMap<PathBuf, (FileIdentity, String)>>,
}

impl AllowedComponents {
    fn new(files: impl Iterator<Item = PathBuf>) -> Self {
        Self { files: files.collect(), digested: Mutex::default() }
    }

    /// The components of `[tenants]` and of `[[extension]]`. No components if the config has no `[tenants]`.
    pub(crate) fn of_config(config: &Config, locations: &Locations) -> Self {
        let added = config.stored_tenants.as_ref();
        let own = config.extensions.iter().map(|extension| &extension.component);
        let named = added.iter().flat_map(|added| added.components.iter().chain(own.clone()));
        // A component of a registry is no file.
        let files = named.filter(|component| !is_reference(component));
        Self::new(files.map(|component| locations.component(component)))
    }

    /// Replaces each digest of an allowed file by the path of the file. Any other digest belongs to an uploaded
    /// component and stays. The function reads files, so it may block.
    pub(crate) fn replace_digests(&self, extensions: &mut [ExtensionConfig]) {
        for extension in extensions {
            if let Some(file) = extension.digest.as_ref().and_then(|digest| self.find(digest)) {
                extension.component = file.to_string_lossy().into_owned();
            }
        }
    }

    /// Finds the allowed file with this digest. The function reads files, so it may block.
    pub(crate) fn find(&self, digest: &str) -> Option<PathBuf> {
        self.files.iter().find(|file| self.digest(file).is_some_and(|of_file| of_file == digest)).cloned()
    }

    /// The digest of a file. `None` if the file cannot be read. A lookup then skips the file.
    fn digest(&self, file: &Path) -> Option<String> {
        let identity = FileIdentity::of(file)?;
        let known = self.digested.lock().unwrap_or_else(PoisonError::into_inner).get(file).cloned();
        if let Some((of_known, digest)) = known
            && of_known == identity
        {
            return Some(digest);
        }
        let digest = Digest::of(&annex_files::read(file, Purpose::Named, MAX_COMPONENT_BYTES).ok()?).to_string();
        let mut digested = self.digested.lock().unwrap_or_else(PoisonError::into_inner);
        digested.insert(file.to_owned(), (identity, digest.clone()));
        Some(digest)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::time::UNIX_EPOCH;

    use annex_runtime::Digest;

    use super::AllowedComponents;

    #[test]
    fn a_link_that_leads_to_another_file_of_the_same_size_and_time_is_digested_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["1", "2"] {
            fs::write(at(name), name).expect("a file");
            // The layers of a reproducible image give all files this time.
            File::options().write(true).open(at(name)).and_then(|file| file.set_modified(UNIX_EPOCH)).expect("a time");
        }
        let allowed = AllowedComponents::new([at("current")].into_iter());
        for name in ["1", "2"] {
            let _ = fs::remove_file(at("current"));
            symlink(name, at("current")).expect("a link");
            assert_eq!(allowed.find(&Digest::of(name.as_bytes()).to_string()), Some(at("current")), "{name}");
        }
    }
}
