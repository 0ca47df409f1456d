//! The extensions that are installed together, in the order in which they run.

use std::sync::Arc;

use annex_protocol::ExtensionUri;

use crate::error::LoadError;
use crate::extension::Extension;

/// Installed extensions: unique URIs, dependencies before dependents.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    extensions: Vec<Arc<Extension>>,
}

impl Installed {
    /// Checks that the extensions fit together.
    ///
    /// # Errors
    /// When two have the same URI, or one depends on what does not stand before it.
    pub fn new(extensions: Vec<Extension>) -> Result<Self, LoadError> {
        let mut installed = Self::default();
        for extension in extensions {
            if installed.get(extension.uri()).is_some() {
                return Err(LoadError::Duplicate { uri: extension.uri().clone() });
            }
            let missing = extension.descriptor.depends_on.iter().find(|needs| installed.get(needs).is_none());
            if let Some(needs) = missing {
                return Err(LoadError::Dependency { uri: extension.uri().clone(), needs: needs.clone() });
            }
            installed.check_keys(&extension)?;
            installed.extensions.push(Arc::new(extension));
        }
        Ok(installed)
    }

    /// What is under a key is its owner's to read and write, and nobody else's. Only the same component under another
    /// URI may own it too.
    fn check_keys(&self, extension: &Extension) -> Result<(), LoadError> {
        for key in &extension.descriptor.metadata_keys {
            let mut others = self.iter().filter(|other| other.digest != extension.digest);
            let owner = others.find(|other| other.descriptor.metadata_keys.contains(key));
            if let Some(owner) = owner {
                let (uri, other) = (extension.uri().clone(), owner.uri().clone());
                return Err(LoadError::SharedKey { uri, other, key: key.clone() });
            }
        }
        Ok(())
    }

    /// The extension with this very URI: no other case, no other version.
    #[must_use]
    pub fn get(&self, uri: &ExtensionUri) -> Option<&Arc<Extension>> {
        self.extensions.iter().find(|extension| extension.uri() == uri)
    }

    /// The URIs of those that are quarantined now.
    pub fn quarantined(&self) -> impl Iterator<Item = &ExtensionUri> {
        self.iter().filter(|extension| extension.breaker.is_open()).map(|extension| extension.uri())
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.extensions.iter()
    }
}
