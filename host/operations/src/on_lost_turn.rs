//! The operator's decision about turns whose process has ended, and its stored form.

use annex_protocol::ExtensionUri;
use serde::{Deserialize, Serialize};

/// The fate of a turn whose process has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLostTurn {
    /// The task fails. The agent has run at most once.
    #[default]
    Fail,
    /// Another process runs the agent again, at most once.
    Rerun,
    /// Another process follows the task that the turn has begun at the upstream, without sending anything again.
    Follow,
}

/// The data that is stored with a task to continue its turn.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredTurn {
    pub(crate) on_lost: OnLostTurn,
    /// The URIs that find the turn's extensions.
    #[serde(default)]
    pub(crate) requested: Vec<ExtensionUri>,
}

/// True if a continued turn runs the agent again.
pub(crate) fn runs_again(stored: &str) -> bool {
    serde_json::from_str(stored).is_ok_and(|turn: StoredTurn| turn.on_lost == OnLostTurn::Rerun)
}
