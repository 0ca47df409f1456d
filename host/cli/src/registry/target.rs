//! The argument of the commands that take a component in a registry or a file.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use annex_registry::{Reference, ReferenceError, is_reference};

/// A component or a file that a command signs or verifies.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A component in a registry.
    Component(Reference),
    /// A file on this machine.
    File(PathBuf),
    /// A component whose reference was written without `oci://`. No file has this name.
    Guess(Reference),
}

/// The reasons why a text is no target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Reference(ReferenceError),
    #[error("no file has this name, and {0}")]
    Neither(ReferenceError),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if is_reference(text) {
            return text.parse().map(Self::Component).map_err(TargetError::Reference);
        }
        if Path::new(text).is_file() {
            return Ok(Self::File(text.into()));
        }
        text.parse().map(Self::Guess).map_err(TargetError::Neither)
    }
}

/// Describes how a text without `oci://` was read, for the error of its command.
pub(super) fn guess(reference: &Reference) -> String {
    format!("no file has this name, so it was read as the reference {reference}")
}
