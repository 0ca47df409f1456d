//! Errors of sessions. After any of these nothing of the failing call is stored, unless it says so.

use annex_protocol::ContextId;

use crate::state::Scope;

/// The reason why a session operation was refused.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The session does not exist, or was deleted or evicted during the call.
    #[error("session {context} not found")]
    NotFound {
        /// The requested context.
        context: ContextId,
    },
    /// A session of this key exists already.
    #[error("session {context} already exists")]
    AlreadyExists {
        /// The context that was to be created.
        context: ContextId,
    },
    /// The context id is empty, or starts or ends with white space. Ids are refused rather than trimmed, because the
    /// client would go on with the untrimmed id.
    #[error("context id {:?} is empty or has white space around it", context.as_str())]
    InvalidContextId {
        /// The rejected id.
        context: ContextId,
    },
    /// A text that things are found by cannot be stored: it is too long, or contains a NUL character that cannot be
    /// escaped.
    #[error("the {field} is longer than {limit} bytes or contains a NUL character")]
    InvalidKey {
        /// The kind of text, such as `state key`.
        field: &'static str,
        /// The largest allowed size, in bytes.
        limit: usize,
    },
    /// A name has invisible characters, or characters that change the display of the surrounding text: control and
    /// format characters, separators of lines and paragraphs.
    #[error("the {field} {text:?} has control or format characters or line separators; leave them out")]
    UnseenCharacters {
        /// The kind of text, such as `state key`.
        field: &'static str,
        /// The name.
        text: String,
    },
    /// Another writer appended after the caller had read the session.
    #[error("stale session: expected revision {expected}, found {found}")]
    Stale {
        /// The revision that the writer had read; 0 when it had found no session.
        expected: u64,
        /// The stored revision.
        found: u64,
    },
    /// Another event is stored under this id. The same event again is no error but a retry.
    #[error("event {id} is stored already with other content")]
    EventConflict {
        /// The id of both events.
        id: String,
    },
    /// The state of one scope would outgrow its limit.
    #[error(
        "{scope} state would take {bytes} bytes, the limit is {limit}; set smaller values, or ask the operator to delete keys \
         or raise sessions.max_state_bytes"
    )]
    StateTooLarge {
        /// The scope that would be too large.
        scope: Scope,
        /// Its size after the change: keys and values as JSON text.
        bytes: usize,
        /// The largest allowed size of one scope, in bytes.
        limit: usize,
    },
    /// The state of one scope would have too many keys.
    #[error(
        "{scope} state would have {keys} keys, the limit is {limit}; use keys that are there, or ask the operator to delete \
         some or raise sessions.max_state_keys"
    )]
    TooManyStateKeys {
        /// The scope.
        scope: Scope,
        /// Its keys after the change.
        keys: usize,
        /// The largest allowed number of keys in one scope.
        limit: usize,
    },
    /// Arrays and objects nest too deep in a value.
    #[error("the value of state key {key:?} nests deeper than {limit} levels")]
    StateTooDeep {
        /// The full key.
        key: String,
        /// The most levels.
        limit: usize,
    },
    /// One artifact is larger than all of a session may be.
    #[error("artifact {name:?} takes {bytes} bytes, the limit is {limit}")]
    ArtifactTooLarge {
        /// Its name.
        name: String,
        /// Its approximate size, in bytes.
        bytes: usize,
        /// The most that the artifacts of a session may take.
        limit: usize,
    },
    /// The turn may not begin or may no longer write: the lease of its replica has ended, or another process has begun
    /// the next turn of the conversation.
    #[error("the turn has lost its place in session {context}")]
    Fenced {
        /// The context.
        context: ContextId,
    },
    /// Too many requests are waiting for their turn in one context.
    #[error("{waiting} turns are waiting in this context already")]
    TooManyTurns {
        /// The number of turns that wait, which is also the limit.
        waiting: usize,
    },
    /// The stored session has a form that this version of the software does not write.
    #[error("session {context} is stored in a form that cannot be read")]
    Unreadable {
        /// The context.
        context: ContextId,
        /// The error in its JSON.
        source: serde_json::Error,
    },
    /// A value could not be encoded as JSON.
    #[error("a value cannot be encoded")]
    Encoding(#[from] serde_json::Error),
    /// The database failed. A change that was in progress may have been stored or not, but never in part.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl SessionError {
    /// True if the events themselves cannot be stored, in any state of the session.
    pub(crate) fn is_about_events(&self) -> bool {
        match self {
            Self::InvalidKey { .. }
            | Self::UnseenCharacters { .. }
            | Self::EventConflict { .. }
            | Self::StateTooLarge { .. }
            | Self::TooManyStateKeys { .. }
            | Self::StateTooDeep { .. }
            | Self::ArtifactTooLarge { .. }
            | Self::Encoding(_) => true,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::InvalidContextId { .. }
            | Self::Stale { .. }
            | Self::Fenced { .. }
            | Self::TooManyTurns { .. }
            | Self::Unreadable { .. }
            | Self::Database(_) => false,
        }
    }
}
