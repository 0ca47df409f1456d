//! The operator's badges, and their form on the card.

use annex_sdk::{Json, json};
use serde::{Deserialize, Serialize};

/// The extension's URI, unless the parameters set another.
pub const DEFAULT_URI: &str = "https://annex.example/compliance-badge/v1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI.
    #[serde(default = "default_uri")]
    pub uri: String,
    /// The badges on the card.
    pub badges: Vec<Badge>,
}

/// One standard that the agent meets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Badge {
    /// The standard or regulation.
    pub standard: String,
    /// The level at which the agent meets the standard, in the standard's own terms.
    pub level: String,
    /// The party that issued the badge.
    pub issuer: String,
    /// The last day on which the badge is valid, in the format of RFC 3339 (`2027-12-31`).
    // The config has names with underscores, the card those of ProtoJSON. The date is not compared with today: clients
    // check it.
    #[serde(rename(serialize = "validUntil"), skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<String>,
    /// The URL of the evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Serialize)]
struct CardParams<'a> {
    badges: &'a [Badge],
}

/// The `params` of the entry on the card.
pub fn card_params(parameters: &Parameters) -> Result<Json, String> {
    json::text(&CardParams { badges: &parameters.badges })
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(json: &str) -> Result<Parameters, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn the_card_shows_the_badges_in_their_order_and_leaves_out_what_is_not_known() {
        let text = r#"{"badges": [
            {"standard": "ISO/IEC 27001:2022", "level": "certified", "issuer": "Example Cert",
             "valid_until": "2027-12-31", "url": "https://example.com/cert"},
            {"standard": "GDPR", "level": "compliant", "issuer": "self"}
        ]}"#;
        let expected = concat!(
            r#"{"badges":[{"standard":"ISO/IEC 27001:2022","level":"certified","issuer":"Example Cert","#,
            r#""validUntil":"2027-12-31","url":"https://example.com/cert"},"#,
            r#"{"standard":"GDPR","level":"compliant","issuer":"self"}]}"#,
        );
        assert_eq!(card_params(&parameters(text).unwrap()).unwrap(), expected);
    }

    #[test]
    fn the_uri_is_the_operators_to_choose() {
        let badge = r#""badges": [{"standard": "s", "level": "l", "issuer": "i"}]"#;
        assert_eq!(parameters(&format!("{{{badge}}}")).unwrap().uri, DEFAULT_URI);
        assert_eq!(
            parameters(&format!(r#"{{"uri": "https://a.example/v1", {badge}}}"#)).unwrap().uri,
            "https://a.example/v1"
        );
    }

    #[test]
    fn a_misspelt_key_is_named() {
        let text = r#"{"badges": [{"standard": "s", "level": "l", "issuer": "i", "validUntill": "2027-12-31"}]}"#;
        let error = parameters(text).unwrap_err();
        assert!(error.contains("`validUntill`"), "{error}");
    }

    #[test]
    fn the_parameter_schema_is_json() {
        assert!(serde_json::from_str::<serde_json::Value>(PARAMETER_SCHEMA).is_ok());
    }
}
