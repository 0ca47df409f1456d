//! The operator's parameters.

use std::sync::OnceLock;

use annex_sdk::members::Members;
use annex_sdk::{Config, FromConfig, Json};

/// The URI under which the extension was first published.
pub const DEFAULT_URI: &str = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";

const DEFAULT_DESCRIPTION: &str =
    "Takes session state from the metadata of a message and returns the session's state with the answer.";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// The extension's URI.
    pub uri: String,
    /// The metadata key of the state.
    pub state_key: String,
    /// The JSON Schema of the state; `None` if any object is valid.
    pub state_schema: Option<StateSchema>,
    /// The description on the card.
    pub description: String,
}

impl Parameters {
    /// Reads the parameters. `get` returns a single parameter as a string or JSON text, so the JSON object with all
    /// parameters need not be parsed.
    pub fn look_up(get: impl Fn(&str) -> Result<Option<String>, String>) -> Result<Self, String> {
        let uri = get("uri")?.unwrap_or_else(|| DEFAULT_URI.to_owned());
        let state_key = get("state_key")?.unwrap_or_else(|| default_state_key(&uri));
        let state_schema = get("state_schema")?.map(StateSchema::new).transpose()?;
        let description = get("description")?.unwrap_or_else(|| DEFAULT_DESCRIPTION.to_owned());
        Ok(Self { uri, state_key, state_schema, description })
    }

    /// The keys that the extension owns. The extension writes only under `state_key`. It also reads state under the
    /// bare URI, because examples of the A2A specification use this key.
    pub fn metadata_keys(&self) -> Vec<String> {
        let mut keys = vec![self.state_key.clone(), self.uri.clone()];
        // An operator may choose the bare URI as the state key.
        keys.dedup();
        keys
    }
}

/// A JSON Schema for the state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSchema {
    /// The operator's text, unchanged.
    pub text: Json,
    outline: OnceLock<Outline>,
}

/// Facts about a schema that the validator does not report. They are determined on demand, because most requests do not
/// need them.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// The names in the schema's top-level `required`.
    pub required: Vec<String>,
    /// The names in the top-level `properties`, then further names in `required`. Only stored keys with these names are
    /// validated, so that other keys of the agent cannot violate the schema.
    pub names: Vec<String>,
}

impl StateSchema {
    /// Checks only that the schema is an object. When the extension is loaded, the host compiles the schema and checks
    /// the rest.
    fn new(text: String) -> Result<Self, String> {
        if !text.trim_start().starts_with('{') {
            return Err("`state_schema` must be a JSON Schema object".to_owned());
        }
        Ok(Self { text, outline: OnceLock::new() })
    }

    /// The outline of the schema's top level.
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

impl FromConfig for Parameters {
    fn from_config(config: &Config) -> Result<Self, String> {
        Self::look_up(|key| config.get(key))
    }
}

/// The default of `state_key`: the URI without its scheme, and `/state`.
fn default_state_key(uri: &str) -> String {
    let (_, path) = uri.split_once("://").unwrap_or(("", uri));
    format!("{path}/state")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(parameters: &[(&str, &str)]) -> Result<Parameters, String> {
        let get = |key: &str| parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
        Parameters::look_up(|key| Ok(get(key)))
    }

    #[test]
    fn the_state_key_follows_from_the_uri() {
        assert_eq!(
            look_up(&[]).unwrap().state_key,
            "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
        );
        assert_eq!(look_up(&[("uri", "urn:x")]).unwrap().state_key, "urn:x/state");
        let both = |uri, key| look_up(&[("uri", uri), ("state_key", key)]).unwrap().metadata_keys();
        assert_eq!(both("https://a/v2", "k"), ["k", "https://a/v2"]);
        assert_eq!(both("k", "k"), ["k"]);
    }

    #[test]
    fn the_schema_is_kept_as_the_operator_wrote_it() {
        let text = r#"{"required":  ["b", "a"], "properties": {"a": true}}"#;
        let schema = look_up(&[("state_schema", text)]).unwrap().state_schema.unwrap();
        assert_eq!(schema.text, text);
        assert_eq!(schema.outline().names, ["a", "b"]);
        assert_eq!(schema.outline().required, ["b", "a"]);
    }

    #[test]
    fn a_schema_that_is_no_object_is_refused_by_name() {
        for text in ["1", "[]", ""] {
            let error = look_up(&[("state_schema", text)]).unwrap_err();
            assert!(error.contains("`state_schema`"), "{text}: {error}");
        }
    }

    #[test]
    fn the_parameter_schema_names_each_parameter() {
        let schema = StateSchema::new(PARAMETER_SCHEMA.to_owned()).unwrap();
        assert_eq!(schema.outline().names, ["uri", "state_key", "state_schema", "description"]);
    }
}
