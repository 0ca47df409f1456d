//! The operator's parameters.

use std::collections::BTreeMap;

use annex_sdk::{Json, json};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The extension's URI, unless the parameters set another.
pub const DEFAULT_URI: &str = "https://annex.example/strict-parts/v1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI.
    #[serde(default = "default_uri")]
    pub uri: String,
    /// True to accept parts with text.
    #[serde(default)]
    pub allow_text: bool,
    /// True to accept parts with bytes or a URL.
    #[serde(default)]
    pub allow_files: bool,
    /// True to require at least one part with data.
    #[serde(default = "yes")]
    pub require_data: bool,
    /// The rules for data. The first rule whose conditions a part meets applies.
    pub schemas: Vec<Rule>,
}

/// A schema for data, and the conditions under which a part must match the schema.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The `mediaType` that a part must have for this rule to apply. `None`: the rule applies to all media types.
    pub media_type: Option<String>,
    /// The metadata entries that a part must have for this rule to apply.
    #[serde(default)]
    pub metadata: BTreeMap<String, Value>,
    /// JSON Schema of the part's `data`, as the operator wrote it.
    #[serde(deserialize_with = "schema_text")]
    pub schema: Json,
}

impl Parameters {
    /// The `params` of the entry on the card, which tell a client the accepted parts.
    pub fn card_params(&self) -> Result<Json, String> {
        let schemas: Result<Vec<CardRule<'_>>, String> = self.schemas.iter().map(CardRule::of).collect();
        json::text(&CardParams {
            allow_text: self.allow_text,
            allow_files: self.allow_files,
            require_data: self.require_data,
            schemas: schemas?,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CardParams<'a> {
    allow_text: bool,
    allow_files: bool,
    require_data: bool,
    schemas: Vec<CardRule<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CardRule<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: &'a BTreeMap<String, Value>,
    // The card shows the schema as the operator wrote it.
    schema: &'a RawValue,
}

impl<'a> CardRule<'a> {
    fn of(rule: &'a Rule) -> Result<Self, String> {
        let schema = serde_json::from_str(&rule.schema).map_err(|error| format!("a schema is not JSON: {error}"))?;
        Ok(Self { media_type: rule.media_type.as_deref(), metadata: &rule.metadata, schema })
    }
}

/// The text of a schema, which the config has as an object or inside of a string.
fn schema_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
    // Kept as text, because a parsed schema would lose digits and the order of its keys.
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    if raw.get().starts_with('"') {
        serde_json::from_str(raw.get()).map_err(D::Error::custom)
    } else {
        Ok(raw.get().to_owned())
    }
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(json: &str) -> Parameters {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn text_and_files_are_out_and_data_is_needed_unless_the_operator_says_otherwise() {
        let defaults = parameters(r#"{"schemas": [{"schema": {}}]}"#);
        assert!(!defaults.allow_text && !defaults.allow_files && defaults.require_data);
        assert_eq!(defaults.uri, DEFAULT_URI);
    }

    #[test]
    fn a_schema_is_kept_as_it_was_written_as_an_object_or_in_a_string() {
        let both = parameters(r#"{"schemas": [{"schema": {"const":  1.0}}, {"schema": "{\"const\":  1.0}"}]}"#);
        for rule in &both.schemas {
            assert_eq!(rule.schema, r#"{"const":  1.0}"#);
        }
    }

    #[test]
    fn the_card_says_what_is_taken() {
        let text = r#"{"allow_text": true, "schemas": [
            {"media_type": "application/x", "schema": {"type": "object"}},
            {"metadata": {"k": "order"}, "schema": true}
        ]}"#;
        let expected = concat!(
            r#"{"allowText":true,"allowFiles":false,"requireData":true,"schemas":["#,
            r#"{"mediaType":"application/x","schema":{"type": "object"}},{"metadata":{"k":"order"},"schema":true}]}"#,
        );
        assert_eq!(parameters(text).card_params().unwrap(), expected);
    }
}
