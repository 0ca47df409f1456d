//! The operator's parameters.

use std::sync::OnceLock;

use annex_sdk::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::members::Members;

/// The URI under which the extension was first published.
pub const DEFAULT_URI: &str = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";

const DEFAULT_DESCRIPTION: &str =
    "Takes session state from the metadata of a message and returns the session's state with the answer.";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "uri": {"type": "string", "minLength": 1, "description": "The extension's URI."},
    "state_key": {"type": "string", "minLength": 1, "description": "The metadata key of the state: by default the URI without its scheme, and `/state`."},
    "state_schema": {"type": ["object", "string"], "description": "JSON Schema of the state, or a string that holds one. Without it any JSON object will do."},
    "description": {"type": "string", "description": "The sentence on the Agent Card."}
  },
  "additionalProperties": false
}"#;

/// Ready for use: defaults filled in, the schema's outline read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Config")]
pub struct Parameters {
    /// The extension's URI.
    pub uri: String,
    /// The metadata key that holds the state.
    pub state_key: String,
    /// What the state must look like.
    pub state_schema: Option<StateSchema>,
    /// The sentence on the card.
    pub description: String,
}

impl Parameters {
    /// The keys that the extension owns. The bare URI is read too, because the examples of the A2A specification use
    /// it as the key; what goes out is always under `state_key`.
    pub fn metadata_keys(&self) -> Vec<String> {
        let mut keys = vec![self.state_key.clone(), self.uri.clone()];
        keys.dedup();
        keys
    }
}

/// A JSON Schema for the state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSchema {
    /// The operator's text, untouched.
    pub text: Json,
    outline: OnceLock<Outline>,
}

/// What of a schema is needed without validating. Most requests need nothing of it, so it is read on demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// The top-level `required`.
    pub required: Vec<String>,
    /// The names in the top-level `properties`, then those in `required` that are not among them. A schema is applied
    /// to these of the stored keys, so that what the agent keeps in the session besides cannot violate it.
    pub names: Vec<String>,
}

impl StateSchema {
    /// Whether it is a schema at all is for the host to say, when it compiles it at load.
    fn parse(text: &str) -> Result<Self, String> {
        if !text.trim_start().starts_with('{') {
            return Err("`state_schema` must be a JSON Schema object".to_owned());
        }
        Ok(Self { text: text.to_owned(), outline: OnceLock::new() })
    }

    /// Its top level.
    pub fn outline(&self) -> &Outline {
        self.outline.get_or_init(|| Outline::of(&self.text))
    }
}

impl Outline {
    fn of(text: &str) -> Self {
        let schema = Members::of(text).unwrap_or_default();
        let properties = schema.get("properties").and_then(Members::of).unwrap_or_default();
        let required = schema.get("required").and_then(|list| serde_json::from_str(list).ok());
        let required: Vec<String> = required.unwrap_or_default();
        let mut names: Vec<String> = properties.keys().map(str::to_owned).collect();
        for name in &required {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self { required, names }
    }
}

/// The parameters as the operator writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    uri: Option<String>,
    state_key: Option<String>,
    state_schema: Option<Box<RawValue>>,
    description: Option<String>,
}

impl TryFrom<Config> for Parameters {
    type Error = String;

    fn try_from(config: Config) -> Result<Self, String> {
        let uri = config.uri.unwrap_or_else(|| DEFAULT_URI.to_owned());
        let state_key = config.state_key.unwrap_or_else(|| default_state_key(&uri));
        let state_schema = config.state_schema.map(|schema| parse_schema(schema.get())).transpose()?;
        let description = config.description.unwrap_or_else(|| DEFAULT_DESCRIPTION.to_owned());
        Ok(Self { uri, state_key, state_schema, description })
    }
}

/// The URI without its scheme, and `/state`.
fn default_state_key(uri: &str) -> String {
    let (_, path) = uri.split_once("://").unwrap_or(("", uri));
    format!("{path}/state")
}

/// A schema may be given as an object, or as a string that holds one.
fn parse_schema(json: &str) -> Result<StateSchema, String> {
    if !json.starts_with('"') {
        return StateSchema::parse(json);
    }
    let text: String = serde_json::from_str(json).map_err(|error| format!("`state_schema`: {error}"))?;
    StateSchema::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Parameters, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn the_state_key_follows_from_the_uri() {
        assert_eq!(
            parse("{}").unwrap().state_key,
            "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
        );
        assert_eq!(parse(r#"{"uri": "urn:x"}"#).unwrap().state_key, "urn:x/state");
        assert_eq!(
            parse(r#"{"uri": "https://a/v2", "state_key": "k"}"#).unwrap().metadata_keys(),
            ["k", "https://a/v2"]
        );
        assert_eq!(parse(r#"{"uri": "k", "state_key": "k"}"#).unwrap().metadata_keys(), ["k"]);
    }

    #[test]
    fn a_schema_in_a_string_is_the_same_as_the_schema_itself() {
        let object = parse(r#"{"state_schema": {"required":  ["b", "a"], "properties": {"a": true}}}"#).unwrap();
        let string =
            parse(r#"{"state_schema": "{\"required\":  [\"b\", \"a\"], \"properties\": {\"a\": true}}"}"#).unwrap();
        assert_eq!(object, string);
        let schema = object.state_schema.unwrap();
        assert_eq!(schema.text, r#"{"required":  ["b", "a"], "properties": {"a": true}}"#);
        assert_eq!(schema.outline().names, ["a", "b"]);
        assert_eq!(schema.outline().required, ["b", "a"]);
    }

    #[test]
    fn a_schema_that_is_no_object_is_refused_by_name() {
        for json in [r#"{"state_schema": 1}"#, r#"{"state_schema": "[]"}"#, r#"{"state_schema": []}"#] {
            let error = parse(json).unwrap_err();
            assert!(error.contains("`state_schema`"), "{json}: {error}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_an_error_that_names_it() {
        let error = parse(r#"{"schema": {}}"#).unwrap_err();
        assert!(error.contains("`schema`"), "{error}");
    }

    #[test]
    fn the_parameter_schema_names_each_parameter() {
        let schema = StateSchema::parse(PARAMETER_SCHEMA).unwrap();
        assert_eq!(schema.outline().names, ["uri", "state_key", "state_schema", "description"]);
    }
}
