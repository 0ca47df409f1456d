//! One version of an extension, and where it came from.

use std::fmt;
use std::sync::Arc;

use annex_protocol::{ExtensionUri, Timestamp};
use annex_runtime::{Digest, Extension};

use crate::config::{ExtensionConfig, ExtensionPlace};

/// The source that names an extension to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An `[[extension]]` of the config.
    Config {
        /// As in the config.
        component: String,
        /// Where it stands.
        place: ExtensionPlace,
    },
    /// A file of `runtime.extensions_dir`.
    Folder {
        /// The file's name without `.wasm`.
        name: String,
    },
    /// The admin API, until the restart.
    Added {
        /// As it was given.
        name: String,
    },
}

impl Origin {
    /// The same with its file, line and column before it: those of the first of these keys that is there.
    pub(crate) fn at<S: AsRef<str>>(&self, keys: &[S]) -> String {
        self.place(keys).map_or_else(|| self.to_string(), |place| format!("{place}: {self}"))
    }

    /// The file, line and column of the first of these keys that is there, or else of the whole entry; `None` for what
    /// stands in no config.
    pub(crate) fn place<S: AsRef<str>>(&self, keys: &[S]) -> Option<String> {
        let Self::Config { place, .. } = self else { return None };
        place.locate(&keys.iter().map(|key| key.as_ref().to_owned()).collect::<Vec<_>>())
    }

    /// The name that the source gives it.
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

/// A loaded component with what the operator decided about it. A change of either makes another version.
#[derive(Clone)]
pub(crate) struct Version {
    /// Counts the versions that this installer has loaded, from 1.
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

    /// True if it is the component of this digest, from the same place, with these settings.
    pub(crate) fn is_of(&self, origin: &Origin, settings: &ExtensionConfig, digest: Digest) -> bool {
        self.origin == *origin && self.settings == *settings && self.extension.digest() == digest
    }
}
