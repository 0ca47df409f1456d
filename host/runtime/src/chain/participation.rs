//! The part that each extension has had in a turn, for records of the turn.

use annex_protocol::ExtensionUri;

use crate::digest::Digest;

/// The part that an extension has had in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartInTurn {
    /// Its hooks ran, and none has failed.
    Active,
    /// The extension did not take part: it declined, or one of its dependencies is not active.
    Skipped,
    /// A hook failed or was cancelled. The extension took no further part.
    Failed,
    /// It has vetoed the turn or a change of state, or has refused content or a call of the model or of a tool.
    Refused,
    /// It has interrupted the task.
    Interrupted,
    /// It has answered in place of the agent.
    Answered,
}

impl PartInTurn {
    /// The name in receipts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::Answered => "answered",
        }
    }
}

/// An extension of a turn, its code and its part in the turn.
#[derive(Clone, Copy, Debug)]
pub struct Participation<'a> {
    /// The URI of the extension.
    pub uri: &'a ExtensionUri,
    /// The digest of its component.
    pub digest: Digest,
    /// Its part in the turn until now.
    pub part: PartInTurn,
}
