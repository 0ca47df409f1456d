//! The operator's parameters, and the keys and limits of both sides, which follow from the parameters.

use annex_sdk::{Json, json};
use serde::{Deserialize, Serialize};

/// The extension's URI, unless the parameters set another.
pub const DEFAULT_URI: &str = "https://annex.example/session-sharing/v1";

/// The version of the metadata values.
pub const VERSION: u64 = 1;

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI.
    pub uri: String,
    /// The maximum number of events of one message.
    pub max_events: usize,
    /// The maximum size of one event's text, in bytes.
    pub max_event_bytes: usize,
    /// The maximum size of all events' texts in one message, in bytes.
    pub max_bytes: usize,
}

impl Default for Parameters {
    fn default() -> Self {
        let uri = DEFAULT_URI.to_owned();
        Self { uri, max_events: 200, max_event_bytes: 16 << 10, max_bytes: 128 << 10 }
    }
}

impl Parameters {
    /// The metadata key of shared events: the URI without its scheme, and `/shared`.
    pub fn shared_key(&self) -> String {
        format!("{}/shared", self.path())
    }

    /// The metadata key of the acknowledgement: the URI without its scheme, and `/received`.
    pub fn received_key(&self) -> String {
        format!("{}/received", self.path())
    }

    /// The limits on one message.
    pub fn limits(&self) -> Limits {
        Limits {
            max_events: Some(self.max_events),
            max_event_bytes: Some(self.max_event_bytes),
            max_bytes: Some(self.max_bytes),
        }
    }

    /// The `params` of the entry on the card, which tell a client the version and the limits.
    pub fn card_params(&self) -> Result<Json, String> {
        json::text(&CardParams { version: VERSION, modes: ["delta", "full"], limits: self.limits() })
    }

    fn path(&self) -> &str {
        // The samples of A2A make metadata keys of a URI in this way.
        self.uri.split_once("://").map_or(self.uri.as_str(), |(_, path)| path)
    }
}

/// The limits on the events of one message. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// The maximum number of events in one message.
    pub max_events: Option<usize>,
    /// The maximum size of one event's text, in bytes.
    pub max_event_bytes: Option<usize>,
    /// The maximum size of the texts of all events, in bytes.
    pub max_bytes: Option<usize>,
}

impl Limits {
    /// Reads the agent's limits from the agent's declaration on the Agent Card (JSON). If the limits cannot be read,
    /// this side applies none, and the agent refuses events that exceed the agent's limits.
    pub fn declared(declaration: &str) -> Self {
        #[derive(Deserialize)]
        struct Declaration {
            params: Limits,
        }
        serde_json::from_str::<Declaration>(declaration).map(|declaration| declaration.params).unwrap_or_default()
    }

    /// Describes the limit that events of these sizes in bytes exceed. `None` if they exceed none.
    pub fn passed_by(&self, sizes: &[usize]) -> Option<String> {
        let passes = |bound: Option<usize>, size: usize| bound.filter(|bound| size > *bound);
        if let Some(bound) = passes(self.max_events, sizes.len()) {
            return Some(format!("are {} events; at most {bound} are allowed", sizes.len()));
        }
        let largest = sizes.iter().copied().max().unwrap_or_default();
        if let Some(bound) = passes(self.max_event_bytes, largest) {
            return Some(format!("have an event with {largest} bytes of text; at most {bound} are allowed"));
        }
        let all = sizes.iter().sum();
        passes(self.max_bytes, all).map(|bound| format!("have {all} bytes of text; at most {bound} are allowed"))
    }
}

#[derive(Serialize)]
struct CardParams {
    version: u64,
    modes: [&'static str; 2],
    #[serde(flatten)]
    limits: Limits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_follow_from_the_uri() {
        let parameters = Parameters::default();
        assert_eq!(parameters.shared_key(), "annex.example/session-sharing/v1/shared");
        let urn = Parameters { uri: "urn:x".to_owned(), ..Parameters::default() };
        assert_eq!(urn.received_key(), "urn:x/received");
    }

    #[test]
    fn a_client_reads_the_limits_that_the_card_shows() {
        let parameters = Parameters { max_events: 3, ..Parameters::default() };
        let params = parameters.card_params().unwrap();
        assert!(params.starts_with(r#"{"version":1,"modes":["delta","full"],"maxEvents":3,"#), "{params}");
        assert_eq!(Limits::declared(&format!(r#"{{"uri": "u", "params": {params}}}"#)), parameters.limits());
        for odd in ["{}", "null", r#"{"params": {"maxEvents": -1}}"#] {
            assert_eq!(Limits::declared(odd), Limits::default(), "{odd}");
        }
    }

    #[test]
    fn each_bound_is_named_when_it_is_passed() {
        let limits = Limits { max_events: Some(2), max_event_bytes: Some(10), max_bytes: Some(15) };
        assert_eq!(limits.passed_by(&[10, 5]), None);
        assert!(limits.passed_by(&[1, 1, 1]).unwrap().contains("3 events"));
        assert!(limits.passed_by(&[11]).unwrap().contains("an event with 11 bytes"));
        assert!(limits.passed_by(&[10, 6]).unwrap().contains("16 bytes"));
        assert_eq!(Limits::default().passed_by(&[usize::MAX]), None);
    }

    #[test]
    fn the_parameter_schema_names_each_parameter() {
        let schema: serde_json::Value = serde_json::from_str(PARAMETER_SCHEMA).unwrap();
        let names: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        for name in ["uri", "max_events", "max_event_bytes", "max_bytes"] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(serde_json::from_str::<Parameters>(r#"{"max_event": 1}"#).is_err());
    }
}
