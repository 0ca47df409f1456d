//! Conversion between JSON and TOML.

use serde_json::{Map, Value as Json};
use toml::{Table, Value};

/// Converts TOML to JSON. Dates become strings.
pub(super) fn json(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.as_str()),
        Value::Integer(number) => Json::from(*number),
        // JSON has no infinity and no value that is no number.
        Value::Float(number) => serde_json::Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Boolean(truth) => Json::from(*truth),
        Value::Datetime(time) => Json::from(time.to_string()),
        Value::Array(items) => items.iter().map(json).collect(),
        Value::Table(table) => object(table),
    }
}

pub(crate) fn object(table: &Table) -> Json {
    Json::Object(table.iter().map(|(key, value)| (key.clone(), json(value))).collect::<Map<_, _>>())
}

/// Converts a value of a case to JSON. A case writes values that TOML cannot express, such as `null`, as a string with
/// JSON.
pub(super) fn of_case(value: &Value) -> serde_json::Result<Json> {
    match value {
        Value::String(text) => serde_json::from_str(text),
        other => Ok(json(other)),
    }
}

/// Converts JSON to TOML. Values that TOML cannot express, such as `null` and large numbers, become a string with JSON.
pub(super) fn toml(value: &Json) -> Value {
    of(value).unwrap_or_else(|| Value::String(value.to_string()))
}

/// Converts JSON to TOML; `None` if TOML cannot express the value.
pub(crate) fn of(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(truth) => Value::Boolean(*truth),
        Json::Number(number) if number.is_f64() => Value::Float(number.as_f64()?),
        Json::Number(number) => Value::Integer(number.as_i64()?),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(of).collect::<Option<_>>()?),
        Json::Object(members) => {
            Value::Table(members.iter().map(|(key, value)| Some((key.clone(), of(value)?))).collect::<Option<_>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn json_comes_back_as_it_was() {
        for value in [json!({"a": [1, 2.5, "x", true, {"b": {}}]}), json!("text"), json!(-7)] {
            assert_eq!(super::json(&super::toml(&value)), value);
        }
        assert_eq!(super::toml(&json!({"a": null})).as_str(), Some(r#"{"a":null}"#));
    }
}
