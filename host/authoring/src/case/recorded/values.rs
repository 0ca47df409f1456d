//! Converts recorded values to TOML.

use serde::Serialize;
use serde_json::Value as Json;
use toml::Value;

use crate::case::toml_json;

/// Converts a value to JSON whose parts can be read.
pub(super) fn json(value: &impl Serialize) -> Result<Json, String> {
    // Through text, because users' JSON is kept as text until it is read.
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Converts a value to TOML. Fails if TOML cannot express the value; `what` names the value in the error.
pub(super) fn said(value: &impl Serialize, what: &str) -> Result<Value, String> {
    toml_json::of(&json(value)?)
        .ok_or_else(|| format!("TOML cannot say {what}: there is a null in it, or a number that is too large"))
}
