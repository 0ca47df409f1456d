//! Pins as they are stored with a task: the versions of extensions for its next turn, and the extension that interrupted
//! the task. All processes share them.

use std::sync::Arc;

use annex_protocol::ExtensionUri;
use serde::{Deserialize, Serialize};

/// The extension versions for a waiting task, and the extension that interrupted the task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskPins {
    /// The versions that the task began with.
    pub(crate) versions: Vec<PinnedVersion>,
    /// The interruption of the task by an extension. `None` if no extension made the task wait, and once the next turn of the
    /// task has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interruption: Option<Interruption>,
}

/// One version of one extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PinnedVersion {
    pub(crate) uri: ExtensionUri,
    /// The digest of the extension's component.
    pub(crate) digest: String,
    /// The digest of the operator's settings for the extension.
    pub(crate) settings: String,
}

/// The reason why a task waits, when an extension made it wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interruption {
    /// The extension, which alone may resume the task.
    pub(crate) by: ExtensionUri,
    /// The extensions that the client requested, and the extensions that were active without a request.
    pub(crate) requested: Vec<ExtensionUri>,
    /// The number of this interruption, unique among the interruptions of the task.
    pub(crate) number: u64,
}

impl TaskPins {
    /// Reads stored pins. Returns no pins for a text that this version of the software does not write.
    pub(crate) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The text to store. Encoding names and digests cannot fail.
    pub(crate) fn text(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }
}
