//! One version of an extension, and its source.

use std::fmt;
use std::sync::Arc;

use annex_protocol::{ExtensionUri, Timestamp};
use annex_runtime::{Digest, Extension};

use super::error::InstallError;
use crate::config::{ExtensionConfig, ExtensionPlace};

/// The source of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An `[[extension]]` of the config.
    Config {
        /// The value of the key `component`.
        component: String,
        /// The position in the config file.
        place: ExtensionPlace,
    },
    /// A file of `runtime.extensions_dir`.
    Folder {
        /// The file's name without `.wasm`.
        name: String,
    },
    /// The admin API. If no other process serves the agent, the extension lasts only until the server restarts.
    Added {
        /// The name in the request.
        name: String,
    },
}

impl Origin {
    /// Describes the origin in an error text. For an `[[extension]]`, the text begins with the position of the first of
    /// `keys` that the `[[extension]]` has.
    pub(crate) fn at<S: AsRef<str>>(&self, keys: &[S]) -> String {
        self.place(keys).map_or_else(|| self.to_string(), |place| format!("{place}: {self}"))
    }

    /// The position of the first of `keys` that the `[[extension]]` has, as `FILE:LINE:COLUMN`. If it has none of these
    /// keys, the position of the `[[extension]]`. `None` if the origin is no config.
    pub(crate) fn place<S: AsRef<str>>(&self, keys: &[S]) -> Option<String> {
        let Self::Config { place, .. } = self else { return None };
        place.locate(&keys.iter().map(|key| key.as_ref().to_owned()).collect::<Vec<_>>())
    }

    /// The name that the extension has in its source.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Config { component: name, .. } | Self::Folder { name } | Self::Added { name } => name,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { component, .. } => write!(formatter, "extension.component = {component:?}"),
            Self::Folder { name } => write!(formatter, "{name}.wasm in runtime.extensions_dir"),
            Self::Added { name } => write!(formatter, "added extension {name:?}"),
        }
    }
}

/// A loaded component with its settings. Another component or other settings make a new version.
#[derive(Clone)]
pub(crate) struct Version {
    /// The number of the version. The versions that an installer loads are numbered from 1.
    pub(crate) number: u64,
    pub(crate) extension: Arc<Extension>,
    pub(crate) origin: Origin,
    pub(crate) settings: ExtensionConfig,
    pub(crate) loaded_at: Timestamp,
}

impl Version {
    pub(crate) fn uri(&self) -> &ExtensionUri {
        self.extension.uri()
    }

    /// Checks that the operator does not deny the version.
    pub(super) fn check_in_service(&self) -> Result<(), InstallError> {
        self.extension.check_in_service().map_err(InstallError::OutOfService)
    }

    /// True if the version has this component, source and settings.
    pub(crate) fn is_of(&self, origin: &Origin, settings: &ExtensionConfig, digest: Digest) -> bool {
        self.origin == *origin && self.settings == *settings && self.extension.digest() == digest
    }
}
