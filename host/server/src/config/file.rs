//! The file that a config was read from, so that it can be read again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Config, ConfigError, ExtensionConfig, live, tenant};

/// The file of a config and what stood in it.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    tables: Arc<toml::Table>,
    /// True for the file of a tenant, which has fewer tables.
    is_of_tenant: bool,
}

impl ConfigFile {
    /// `text` was parsed before, so it is TOML.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), tables: Arc::new(toml::from_str(text).unwrap_or_default()), is_of_tenant: false }
    }

    /// The same for the file of a tenant.
    pub(super) fn of_tenant(path: &Path, text: &str) -> Self {
        Self { is_of_tenant: true, ..Self::new(path, text) }
    }

    /// Reads it again: what it says now, and its extensions.
    ///
    /// # Errors
    /// When it can no longer be used.
    pub(crate) fn read_again(&self) -> Result<(Self, Vec<ExtensionConfig>), ConfigError> {
        let path = &self.path;
        if self.is_of_tenant {
            let text = tenant::text(path)?;
            return Ok((Self::of_tenant(path, &text), tenant::extensions(path, &text)?));
        }
        let Config { file, extensions, .. } = self.config()?;
        // What was read from a file always has one.
        Ok((file.unwrap_or_else(|| self.clone()), extensions))
    }

    /// All that the file says now, of a file that is not a tenant's.
    ///
    /// # Errors
    /// When it can no longer be used.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let config = Config::read(&self.path)?;
        // A config that had an agent keeps one, because the next start may need it. Only a program that brings its own
        // does without.
        if self.tables.contains_key("agent") {
            config.agent()?;
        }
        Ok(config)
    }

    /// The keys that say something else in `other` and need a restart, each with the reason: `[[extension]]`, `[[tenant]]` and
    /// what else counts without one is left out. For the file of a tenant these are all others, because it is loaded as a whole.
    pub(crate) fn that_need_restart(&self, other: &Self) -> Vec<String> {
        if self.is_of_tenant {
            let keys: std::collections::BTreeSet<&String> = self.tables.keys().chain(other.tables.keys()).collect();
            let changed = keys.into_iter().filter(|key| self.tables.get(*key) != other.tables.get(*key));
            return changed.filter(|key| *key != "extension").cloned().collect();
        }
        live::that_need_restart(&self.tables, &other.tables)
    }

    /// The keys that say something else in `other` and count without a restart, besides those of `[[extension]]` and
    /// `[[tenant]]`.
    pub(crate) fn that_count(&self, other: &Self) -> Vec<String> {
        live::that_count(&self.tables, &other.tables)
    }

    /// True if one of the tables says something else in `other`; `table` may be a dotted path.
    pub(crate) fn differs(&self, other: &Self, table: &str) -> bool {
        let of = |file: &Self| {
            let mut names = table.split('.');
            let first = names.next().and_then(|name| file.tables.get(name)).cloned();
            names.try_fold(first?, |table, name| table.get(name).cloned())
        };
        of(self) != of(other)
    }
}
