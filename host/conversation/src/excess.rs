//! The limits that a change would exceed.

use std::fmt;

use crate::state::Scope;

/// A limit that would be exceeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// The state of one scope would outgrow its limit.
    #[error(
        "{scope} state would take {bytes} bytes, the limit is {limit}; set smaller values, or ask the operator to delete keys \
         or raise sessions.max_state_bytes"
    )]
    StateBytes {
        /// The scope that would be too large.
        scope: Scope,
        /// The size of the scope after the change: the bytes of its keys and values as JSON text.
        bytes: usize,
        /// The limit on the size of one scope, in bytes.
        limit: usize,
    },
    /// The state of one scope would have too many keys.
    #[error(
        "{scope} state would have {keys} keys, the limit is {limit}; use keys that are there, or ask the operator to delete \
         some or raise sessions.max_state_keys"
    )]
    StateKeys {
        /// The scope.
        scope: Scope,
        /// The number of keys in the scope after the change.
        keys: usize,
        /// The maximum number of keys in one scope.
        limit: usize,
    },
    /// Arrays and objects nest too deep in a value.
    #[error("the value of state key {key:?} nests deeper than {limit} levels")]
    StateDepth {
        /// The full key.
        key: String,
        /// The maximum depth of nesting in a value.
        limit: usize,
    },
    /// One artifact is larger than all artifacts of a conversation may be.
    #[error("artifact {name:?} takes {bytes} bytes, the limit is {limit}")]
    Artifact {
        /// The name of the artifact.
        name: String,
        /// The approximate size of the artifact, in bytes.
        bytes: usize,
        /// The limit on the size of all artifacts of a conversation, in bytes.
        limit: usize,
    },
    /// A task would exceed one of its limits.
    #[error("the task has {found} {measure}, and {limit} is the limit")]
    Task {
        /// The measure that exceeds its limit.
        measure: Measure,
        /// The value of the measure after the change.
        found: usize,
        /// The limit on this measure.
        limit: usize,
    },
}

/// The quantities of a task that have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The size of the task, in bytes.
    Bytes,
    /// The number of messages.
    Messages,
    /// The number of artifacts.
    Artifacts,
    /// The size of all entries of the task, in bytes.
    Logged,
}

impl fmt::Display for Measure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bytes => "bytes",
            Self::Messages => "messages",
            Self::Artifacts => "artifacts",
            Self::Logged => "bytes of events",
        })
    }
}
