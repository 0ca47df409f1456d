//! Decides which events get a timestamp, and under which key.

use annex_sdk::{Event, EventKind, Incoming, Json};
use serde::Deserialize;

/// The URI in the published implementations. The text of the specification has a URI with another path.
pub const DEFAULT_URI: &str = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Config")]
pub struct Parameters {
    /// The extension's URI.
    pub uri: String,
    /// The metadata key of the timestamp.
    pub key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    uri: Option<String>,
    key: Option<String>,
}

impl From<Config> for Parameters {
    fn from(config: Config) -> Self {
        let uri = config.uri.unwrap_or_else(|| DEFAULT_URI.to_owned());
        let key = config.key.unwrap_or_else(|| {
            let (_, path) = uri.split_once("://").unwrap_or(("", &uri));
            format!("{path}/timestamp")
        });
        Self { uri, key }
    }
}

/// True if the event needs a timestamp: a message, an artifact, or a status with a message. An existing timestamp
/// stays, because the sender that set the timestamp knew the time better.
pub fn wants_stamp(parameters: &Parameters, event: &Event) -> bool {
    let is_stampable = match event.kind {
        EventKind::Message | EventKind::Artifact => true,
        // A TaskStatus of A2A has no metadata of its own, so the stamp is put on the message of the status.
        EventKind::Status => event.has_message,
    };
    is_stampable && !event.present.contains(&parameters.key)
}

/// The last timestamp in an answer. An agent may also return the client's own message, which comes first.
pub fn newest_stamp(event: Incoming) -> Option<Json> {
    // Only an agent that has activated the extension adds timestamps.
    event.metadata.into_iter().next_back().filter(|_| event.active).map(|(_, stamp)| stamp)
}

#[cfg(test)]
mod tests {
    use annex_sdk::testing::event;

    use super::*;

    const KEY: &str = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp";

    fn parameters(json: &str) -> Parameters {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_key_follows_from_the_uri() {
        assert_eq!(parameters("{}").key, KEY);
        assert_eq!(parameters(r#"{"uri": "https://a.example/v2"}"#).key, "a.example/v2/timestamp");
        assert_eq!(
            parameters(r#"{"key": "time"}"#),
            Parameters { uri: DEFAULT_URI.to_owned(), key: "time".to_owned() }
        );
    }

    #[test]
    fn an_unknown_parameter_is_an_error_that_names_it() {
        let error = serde_json::from_str::<Parameters>(r#"{"zone": "CET"}"#).unwrap_err().to_string();
        assert!(error.contains("`zone`"), "{error}");
    }

    #[test]
    fn messages_and_artifacts_are_stamped() {
        assert!(wants_stamp(&parameters("{}"), &event(EventKind::Message)));
        assert!(wants_stamp(&parameters("{}"), &event(EventKind::Artifact)));
    }

    #[test]
    fn a_status_is_stamped_only_when_it_carries_a_message() {
        assert!(!wants_stamp(&parameters("{}"), &event(EventKind::Status)));
        assert!(wants_stamp(&parameters("{}"), &Event { has_message: true, ..event(EventKind::Status) }));
    }

    #[test]
    fn a_stamp_is_never_overwritten() {
        for kind in [EventKind::Message, EventKind::Artifact, EventKind::Status] {
            let stamped = Event { present: vec![KEY.to_owned()], has_message: true, ..event(kind) };
            assert!(!wants_stamp(&parameters("{}"), &stamped));
        }
    }
}
