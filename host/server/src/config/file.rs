//! The file that a config was read from, so that it can be read again.

use std::path::{Path, PathBuf};

/// The file of a config and what stood in it.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    tables: toml::Table,
}

impl ConfigFile {
    /// `text` was parsed before, so it is TOML.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), tables: toml::from_str(text).unwrap_or_default() }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The tables besides `[[extension]]` that say something else in `other`.
    pub(crate) fn other_changes(&self, other: &Self) -> Vec<String> {
        let keys: std::collections::BTreeSet<&String> = self.tables.keys().chain(other.tables.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.tables.get(*key) != other.tables.get(*key));
        changed.filter(|key| *key != "extension").cloned().collect()
    }
}
