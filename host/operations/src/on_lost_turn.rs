//! The operator's decision about turns whose process has ended, and the stored JSON from which another process runs
//! such turns.

use annex_protocol::{ExtensionUri, Message, Metadata, SendMessageConfiguration, SendMessageRequest};
use serde::{Deserialize, Serialize};

/// The decision of the operator about turns whose process has ended.
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

/// The data that the store keeps as JSON with a turn that has begun.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredTurn {
    pub(crate) on_lost: OnLostTurn,
    /// The URIs that activate the extensions of the turn when it runs again.
    #[serde(default)]
    pub(crate) requested: Vec<ExtensionUri>,
}

/// The data that the store keeps as JSON with a waiting turn: the request without its push config. The store keeps the
/// push config with the task.
#[derive(Debug, Serialize)]
pub(crate) struct RequestToStore<'a> {
    pub(crate) requested: &'a [ExtensionUri],
    pub(crate) message: &'a Message,
    pub(crate) metadata: &'a Metadata,
    pub(crate) accepted_output_modes: &'a [String],
    /// The question of the task when the message came. `None` for a new task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<u64>,
}

/// A stored [`RequestToStore`], as another process reads it.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredRequest {
    pub(crate) requested: Vec<ExtensionUri>,
    message: Message,
    metadata: Metadata,
    accepted_output_modes: Vec<String>,
    #[serde(default)]
    pub(crate) asked: Option<u64>,
}

impl StoredRequest {
    /// The request of the client, and the URIs that activate the extensions of the turn.
    pub(crate) fn into_request(self) -> (SendMessageRequest, Vec<ExtensionUri>) {
        let Self { requested, message, metadata, accepted_output_modes, asked: _ } = self;
        let configuration = SendMessageConfiguration { accepted_output_modes, ..SendMessageConfiguration::default() };
        (SendMessageRequest { message, metadata, configuration, ..SendMessageRequest::default() }, requested)
    }
}
