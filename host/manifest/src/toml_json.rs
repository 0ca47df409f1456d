//! Conversion of TOML to JSON.

use serde_json::{Map, Value as Json};
use toml::{Table, Value};

/// Converts TOML to JSON. Dates become strings, and numbers that JSON lacks become `null`.
#[must_use]
pub fn value(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.as_str()),
        Value::Integer(number) => Json::from(*number),
        // JSON has no infinity and no value that is no number.
        Value::Float(number) => serde_json::Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Boolean(truth) => Json::from(*truth),
        Value::Datetime(time) => Json::from(time.to_string()),
        Value::Array(items) => items.iter().map(self::value).collect(),
        Value::Table(table) => object(table),
    }
}

/// Converts a table of TOML to an object of JSON.
#[must_use]
pub fn object(table: &Table) -> Json {
    Json::Object(table.iter().map(|(key, value)| (key.clone(), self::value(value))).collect::<Map<_, _>>())
}
