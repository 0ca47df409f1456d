//! The digest that binds an approval to what was shown.

use annex_sdk::json;
use hmac_sha256::Hash;
use serde_json::{Map, Number, Value, json};

/// The largest integer up to which each integer is a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The digest of a call: SHA-256 of the canonical text of `{"arguments": …, "name": …}`, in hexadecimal.
pub fn of_call(name: &str, arguments: &Value) -> String {
    of_value(&json!({"name": name, "arguments": arguments}))
}

/// The digest of a result: SHA-256 of the canonical text of `{"parts": …, "task": …}`.
pub fn of_result(task: &str, parts: &Value) -> String {
    of_value(&json!({"task": task, "parts": parts}))
}

/// The SHA-256 of several texts, in hexadecimal. Each text comes with its length, so other texts have another hash.
pub fn of_texts(texts: &[&str]) -> String {
    let joined: String = texts.iter().map(|text| format!("{}:{text}", text.len())).collect();
    hex(joined.as_bytes())
}

fn of_value(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    hex(text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    Hash::hash(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes JSON without white space, and with the members of objects in the order of the bytes of their names.
fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => write_members(members, text),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                text.push(if place == 0 { '[' } else { ',' });
                write(item, text);
            }
            text.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::String(string) => text.push_str(&json::string(string)),
        Value::Number(number) => text.push_str(&number_text(number)),
        Value::Bool(_) | Value::Null => text.push_str(&value.to_string()),
    }
}

fn write_members(members: &Map<String, Value>, text: &mut String) {
    let mut members: Vec<(&String, &Value)> = members.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    for (place, (name, value)) in members.iter().enumerate() {
        text.push(if place == 0 { '{' } else { ',' });
        text.push_str(&json::string(name));
        text.push(':');
        write(value, text);
    }
    text.push_str(if members.is_empty() { "{}" } else { "}" });
}

/// A number has one text, whichever way it was written: a database may write `1e2` as `100`.
fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if !number.is_i64() && !number.is_u64() && float.fract() == 0.0 && float.abs() <= MAX_EXACT => {
            // Adding zero makes a negative zero positive.
            format!("{:.0}", float + 0.0)
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(arguments: &str) -> String {
        of_call("pay", &serde_json::from_str(arguments).unwrap())
    }

    #[test]
    fn the_digest_is_of_the_canonical_text() {
        let expected = hex(br#"{"arguments":{"a":[1,"x",{}],"b":null},"name":"pay"}"#);
        assert_eq!(digest(r#"{ "b": null, "a": [1.0, "x", {}] }"#), expected);
        assert_eq!(digest(r#"{"a":[1e0,"\u0078",{}],"b":null}"#), expected);
    }

    #[test]
    fn other_arguments_have_another_digest() {
        let first = digest(r#"{"a":1,"b":"c"}"#);
        for other in [r#"{"a":2,"b":"c"}"#, r#"{"a":"1","b":"c"}"#, r#"{"a":1}"#, r#"{"a":1.5,"b":"c"}"#, "{}"] {
            assert_ne!(digest(other), first, "{other}");
        }
        assert_ne!(of_call("payout", &json!({"a": 1, "b": "c"})), first);
    }

    #[test]
    fn texts_that_are_cut_elsewhere_have_another_hash() {
        assert_ne!(of_texts(&["a", "bc"]), of_texts(&["ab", "c"]));
    }
}
