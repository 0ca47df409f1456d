//! The fate of a turn whose process is gone, as it is decided and as it is stored with the task.

use annex_protocol::ExtensionUri;
use serde::{Deserialize, Serialize};

/// The fate of a turn whose process is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLostTurn {
    /// Its task fails: the agent has run at most once.
    #[default]
    Fail,
    /// The agent runs again, in another process and once more at most.
    Rerun,
    /// The task that it has begun at an agent elsewhere is followed, and nothing is sent again.
    Follow,
}

/// The text that is stored with a task to go on with its turn.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredTurn {
    pub(crate) on_lost: OnLostTurn,
    /// The URIs by which the turn finds its extensions.
    #[serde(default)]
    pub(crate) requested: Vec<ExtensionUri>,
}

/// True if the agent of the stored turn runs again when another process goes on with it.
pub(crate) fn runs_again(stored: &str) -> bool {
    serde_json::from_str(stored).is_ok_and(|turn: StoredTurn| turn.on_lost == OnLostTurn::Rerun)
}
