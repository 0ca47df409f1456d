//! Searches a message for card numbers.

use annex_sdk::{Violation, pointer};
use serde_json::Value;

use crate::numbers::has_card_number;

/// The most violations in one answer. After the client has fixed these, the next answer shows further ones.
const MAX_VIOLATIONS: usize = 64;

/// Finds card numbers in the texts, numbers and keys of a message (JSON). Each violation points into the request.
/// Neither the pointer nor the text contains the card number, because both are logged.
pub fn violations(message: &str) -> Vec<Violation> {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    let mut found = Vec::new();
    let parts = message.get("parts").and_then(Value::as_array);
    for (number, part) in parts.into_iter().flatten().enumerate() {
        // Bytes are not searched, because their format is unknown.
        for name in ["text", "data", "url", "filename"] {
            if let Some(value) = part.get(name) {
                look_into(value, &format!("/message/parts/{number}/{name}"), &mut found);
            }
        }
    }
    found
}

/// Searches a value. The host has limited its nesting.
fn look_into(value: &Value, place: &str, found: &mut Vec<Violation>) {
    if found.len() == MAX_VIOLATIONS {
        return;
    }
    match value {
        Value::String(text) if has_card_number(text) => found.push(violation(place, "")),
        Value::Number(number) if has_card_number(&number.to_string()) => found.push(violation(place, "")),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look_into(item, &format!("{place}/{index}"), found);
            }
        }
        Value::Object(members) if members.keys().any(|key| has_card_number(key)) => {
            found.push(violation(place, " in a key"));
        }
        Value::Object(members) => {
            for (key, member) in members {
                look_into(member, &pointer::child(place, key), found);
            }
        }
        Value::String(_) | Value::Number(_) | Value::Null | Value::Bool(_) => {}
    }
}

fn violation(place: &str, at: &str) -> Violation {
    Violation::new(place, format!("has the number of a payment card{at}; leave it out"))
}

#[cfg(test)]
mod tests {
    use super::violations;

    fn places(parts: &str) -> Vec<String> {
        let message = format!(r#"{{"messageId":"4111111111111111","role":"ROLE_USER","parts":{parts}}}"#);
        violations(&message).into_iter().map(|violation| violation.pointer).collect()
    }

    #[test]
    fn texts_data_names_and_addresses_are_looked_into_and_bytes_are_not() {
        let parts = r#"[
            {"text": "4111 1111 1111 1111"},
            {"text": "hello", "filename": "4111-1111-1111-1111"},
            {"url": "https://example.com/?card=4111111111111111"},
            {"raw": "4111111111111111"},
            {"data": {"a/b": [1, "x", {"n": 4111111111111111}], "c": "5555555555554444", "d": null}}
        ]"#;
        let expected = [
            "/message/parts/0/text",
            "/message/parts/1/filename",
            "/message/parts/2/url",
            "/message/parts/4/data/a~1b/2/n",
            "/message/parts/4/data/c",
        ];
        assert_eq!(places(parts), expected);
    }

    #[test]
    fn a_key_with_a_number_is_named_by_the_object_that_has_it() {
        let found = places(r#"[{"data": {"a": {"4111 1111 1111 1111": true, "b": "5555555555554444"}}}]"#);
        assert_eq!(found, ["/message/parts/0/data/a"]);
    }

    #[test]
    fn the_number_of_violations_is_bounded() {
        let texts = vec![r#""4111111111111111""#; 100].join(",");
        assert_eq!(places(&format!(r#"[{{"data":[{texts}]}}]"#)).len(), super::MAX_VIOLATIONS);
    }
}
