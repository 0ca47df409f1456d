//! Conversion between JSON and TOML.

pub(super) use annex_manifest::{json_of_table as object, json_of_toml as json};
use serde_json::Value as Json;
use toml::Value;

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
