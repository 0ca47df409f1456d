//! The operator's parameters.

use serde::Deserialize;

use crate::routing::Route;

/// The URI of the public specification.
pub const DEFAULT_URI: &str = "https://github.com/a2aproject/a2a-samples/tree/main/extensions/agp";

/// The `params` of the entry on the card.
pub const CARD_PARAMS: &str = r#"{"agent_role":"gateway","supported_agp_versions":["1.0"]}"#;

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Config")]
pub struct Parameters {
    /// The extension's URI.
    pub uri: String,
    /// The metadata key of the routes.
    pub key: String,
    /// The operator's fixed routes.
    pub routes: Vec<Route>,
    /// True if squads may announce routes.
    pub announcements: bool,
    /// The name of the secret that announcements must contain.
    pub announce_secret: Option<String>,
    /// The lifetime of an announcement, in milliseconds.
    pub ttl_millis: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    uri: Option<String>,
    key: Option<String>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    announcements: bool,
    announce_secret: Option<String>,
    ttl_seconds: Option<u32>,
}

impl From<Config> for Parameters {
    fn from(config: Config) -> Self {
        let uri = config.uri.unwrap_or_else(|| DEFAULT_URI.to_owned());
        let key = config.key.unwrap_or_else(|| {
            let (_, path) = uri.split_once("://").unwrap_or(("", &uri));
            format!("{path}/routes")
        });
        Self {
            uri,
            key,
            routes: config.routes,
            announcements: config.announcements,
            announce_secret: config.announce_secret,
            ttl_millis: u64::from(config.ttl_seconds.unwrap_or(300)) * 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_has_the_documented_values() {
        let parameters: Parameters = serde_json::from_str("{}").unwrap();
        assert_eq!(parameters.uri, DEFAULT_URI);
        assert_eq!(parameters.key, "github.com/a2aproject/a2a-samples/tree/main/extensions/agp/routes");
        assert!(!parameters.announcements && parameters.routes.is_empty());
        assert_eq!(parameters.ttl_millis, 300_000);
    }

    #[test]
    fn a_route_costs_nothing_and_has_no_policy_unless_it_says_so() {
        let text = r#"{"routes": [{"capability": "billing", "path": "Squad/a"}]}"#;
        let parameters: Parameters = serde_json::from_str(text).unwrap();
        assert_eq!(parameters.routes[0].cost, 0.0);
        assert!(parameters.routes[0].policy.is_empty());
    }
}
