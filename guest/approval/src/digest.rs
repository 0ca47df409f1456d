//! The digest that binds an approval to the content that the approver saw.

use annex_sdk::{json, pointer};
use hmac_sha256::Hash;
use serde_json::{Map, Number, Value, json};

/// The largest integer up to which each integer is a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
const MAX_EXACT_INTEGER: u64 = 1 << 53;

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

/// True if each number in a JSON text keeps its value when it is read. Other numbers are rounded: what people are shown
/// would differ from what the tool gets.
pub fn keeps_numbers(text: &str) -> bool {
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter == '"' || letter == '-' || letter.is_ascii_digit()) {
        let (_, from) = rest.split_at(start);
        rest = match from.strip_prefix('"') {
            Some(string) => after_string(string),
            None => {
                let is_over = |letter: char| !letter.is_ascii_digit() && !"+-.eE".contains(letter);
                let (number, after) = from.split_at(from.find(is_over).unwrap_or(from.len()));
                let read = serde_json::from_str::<Number>(number).map(|number| decimal(&number.to_string()));
                if read.ok().flatten().is_none_or(|read| decimal(number) != Some(read)) {
                    return false;
                }
                after
            }
        };
    }
    true
}

/// The integers above 2^53, each as the JSON Pointer of its place and its digits. A client that reads numbers as doubles,
/// as in JavaScript, shows other digits.
pub fn large_integers(value: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    find_large(value, "", &mut found);
    found
}

fn find_large(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| find_large(value, &pointer::child(place, name), found));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| find_large(item, &pointer::child(place, &index.to_string()), found));
        }
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_some_and(|size| size > MAX_EXACT_INTEGER) {
                found.push((place.to_owned(), number.to_string()));
            }
        }
        Value::String(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// The text after the quotation mark that ends a string.
fn after_string(text: &str) -> &str {
    let mut is_escaped = false;
    let end = text.find(|letter: char| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
}

/// The value of a number, one for all ways to write it: whether it is negative, its digits without zeros at the ends, and
/// the power of ten of the last digit. `None` if the exponent is out of all bounds.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (is_negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    let places = i64::try_from(fraction.len()).ok()?;
    let power = exponent.parse::<i64>().ok()?.checked_sub(places)?.checked_add(zeros)?;
    Some((is_negative, significant.to_owned(), power))
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
    fn numbers_that_are_rounded_are_found() {
        for kept in [
            "{}",
            r#"{"a":[0,-0,-0.0,1.50,1e2,1E+2,1.0e-7,0.1,120e-1],"b":-5}"#,
            r#"{"a":9223372036854775807,"b":18446744073709551615,"c":-9223372036854775808}"#,
            r#"{"a":"12345678901234567890123","1.00000000000000000001":"\\","c\"0.10000000000000000001":"é 1-2"}"#,
        ] {
            assert!(keeps_numbers(kept), "{kept}");
        }
        for rounded in [
            r#"{"a":18446744073709551617}"#,
            r#"{"a":{"b":[1,0.10000000000000000001]}}"#,
            r#"{"a":"x","b":-12345678901234567890}"#,
            r#"{"a":1e-400}"#,
            r#"{"a":1e400}"#,
            r#"{"\\":100000000000000000000001}"#,
        ] {
            assert!(!keeps_numbers(rounded), "{rounded}");
        }
    }

    #[test]
    fn integers_that_doubles_do_not_hold_are_found_with_their_places() {
        let value =
            json!({"a": [1, 9_007_199_254_740_993_u64], "b/c": {"d": -9_007_199_254_740_993_i64}, "e": 1.5e300});
        let found = large_integers(&value);
        let expected = [("/a/1", "9007199254740993"), ("/b~1c/d", "-9007199254740993")];
        assert_eq!(found, expected.map(|(place, digits)| (place.to_owned(), digits.to_owned())));
        assert!(large_integers(&json!([9_007_199_254_740_992_u64, -9_007_199_254_740_992_i64])).is_empty());
    }

    #[test]
    fn texts_that_are_cut_elsewhere_have_another_hash() {
        assert_ne!(of_texts(&["a", "bc"]), of_texts(&["ab", "c"]));
    }
}
