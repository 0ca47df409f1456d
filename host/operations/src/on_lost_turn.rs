//! The operator's decision about turns whose process has ended, and the stored JSON from which another process runs
//! such turns.

use annex_protocol::{ExtensionUri, Message, Metadata, SendMessageConfiguration, SendMessageRequest};
use annex_telemetry::traces::{SpanContext, parent_of};
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
    /// The span of the request, to which the trace of the turn's continuation is linked. `None` without traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
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
    /// The span of the request, to which the trace of the turn is linked if another process runs it. `None` without traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
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

/// The span in a stored [`StoredTurn`] or [`RequestToStore`].
pub(crate) fn stored_span(text: &str) -> Option<SpanContext> {
    #[derive(Deserialize)]
    struct StoredTrace {
        #[serde(default)]
        traceparent: Option<String>,
    }
    let stored: StoredTrace = serde_json::from_str(text).ok()?;
    parent_of(&stored.traceparent?, None)
}

/// The current span, for [`stored_span`].
pub(crate) fn span_to_store() -> Option<String> {
    annex_telemetry::trace_fields().map(|fields| fields.parent)
}

impl StoredRequest {
    /// The request of the client, and the URIs that activate the extensions of the turn.
    pub(crate) fn into_request(self) -> (SendMessageRequest, Vec<ExtensionUri>) {
        let Self { requested, message, metadata, accepted_output_modes, asked: _ } = self;
        let configuration = SendMessageConfiguration { accepted_output_modes, ..SendMessageConfiguration::default() };
        (SendMessageRequest { message, metadata, configuration, ..SendMessageRequest::default() }, requested)
    }
}

#[cfg(test)]
mod tests {
    use super::{OnLostTurn, StoredTurn, stored_span};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_stored_turn_names_its_span_and_one_without_a_trace_is_stored_as_before() {
        let stored = |traceparent: Option<&str>| {
            let traceparent = traceparent.map(str::to_owned);
            let turn = StoredTurn { on_lost: OnLostTurn::Rerun, requested: Vec::new(), traceparent };
            serde_json::to_string(&turn).expect("JSON")
        };
        let span = stored_span(&stored(Some(PARENT))).expect("a span");
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(stored(None), r#"{"on_lost":"rerun","requested":[]}"#);
        for text in [stored(None).as_str(), &stored(Some("forged")), "{}", "no JSON"] {
            assert!(stored_span(text).is_none(), "{text}");
        }
        let earlier: StoredTurn = serde_json::from_str(r#"{"on_lost":"rerun"}"#).expect("a turn of an earlier version");
        assert_eq!(earlier.traceparent, None);
    }
}
