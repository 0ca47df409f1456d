//! The file of a config, for reloads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Config, ConfigError, ExtensionConfig, live, tenant};

/// The file of a config, with its content at the last read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    tables: Arc<toml::Table>,
    /// True for a tenant's file, which has fewer tables.
    is_of_tenant: bool,
}

impl ConfigFile {
    /// The file at `path` with the content `text`, which must be valid TOML.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), tables: Arc::new(toml::from_str(text).unwrap_or_default()), is_of_tenant: false }
    }

    /// Like [`ConfigFile::new`], but for a tenant's file, which has fewer tables than the file of a server.
    pub(super) fn of_tenant(path: &Path, text: &str) -> Self {
        Self { is_of_tenant: true, ..Self::new(path, text) }
    }

    /// Reads the file again. Returns the file with its present content, and the extensions in it.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes.
    pub(crate) fn read_again(&self) -> Result<(Self, Vec<ExtensionConfig>), ConfigError> {
        let path = &self.path;
        if self.is_of_tenant {
            let text = tenant::text(path)?;
            return Ok((Self::of_tenant(path, &text), tenant::extensions(path, &text)?));
        }
        let Config { file, extensions, .. } = self.config()?;
        // `Config::read` always sets the file.
        Ok((file.unwrap_or_else(|| self.clone()), extensions))
    }

    /// Reads the whole config again. Must not be called for a tenant's file.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let config = Config::read(&self.path)?;
        // If the config had an agent, it must keep one, because the next start may need it. A program that brings its
        // own agent never had one in the config.
        if self.tables.contains_key("agent") {
            config.agent()?;
        }
        Ok(config)
    }

    /// The changed keys that need a restart, each with the reason. Keys that a reload applies are not included, such as
    /// `[[extension]]` and `[[tenant]]`. A tenant is loaded as a whole, so for a tenant's file the result has every
    /// changed table except `[[extension]]`.
    pub(crate) fn that_need_restart(&self, other: &Self) -> Vec<String> {
        if self.is_of_tenant {
            let keys: std::collections::BTreeSet<&String> = self.tables.keys().chain(other.tables.keys()).collect();
            let changed = keys.into_iter().filter(|key| self.tables.get(*key) != other.tables.get(*key));
            return changed.filter(|key| *key != "extension").cloned().collect();
        }
        live::that_need_restart(&self.tables, &other.tables)
    }

    /// The changed keys that a reload applies, except `[[extension]]` and `[[tenant]]`.
    pub(crate) fn that_count(&self, other: &Self) -> Vec<String> {
        live::that_count(&self.tables, &other.tables)
    }

    /// True if `table` differs between the two files. `table` may be a dotted path.
    pub(crate) fn differs(&self, other: &Self, table: &str) -> bool {
        let of = |file: &Self| {
            let mut names = table.split('.');
            let first = names.next().and_then(|name| file.tables.get(name)).cloned();
            names.try_fold(first?, |table, name| table.get(name).cloned())
        };
        of(self) != of(other)
    }
}
