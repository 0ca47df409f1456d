//! Keywords that look at one value alone.

use annex_sdk::schema;
use serde_json::{Value, json};

use super::{HOST_STEPS, NAMES_OF_A_STEP};

/// Maximum length of a text that a violation quotes, in bytes.
const MAX_QUOTE: usize = 80;

/// The steps that a keyword takes in addition to those of its schemas.
pub(super) fn steps(keyword: &str, argument: &Value, value: &Value) -> usize {
    match (keyword, argument, value) {
        ("enum" | "required", Value::Array(list), _) => list.len() / NAMES_OF_A_STEP,
        ("pattern" | "format", _, Value::String(_)) => HOST_STEPS,
        _ => 0,
    }
}

/// Why a value does not satisfy a keyword. `None` if it does, and for keywords that this module does not know.
pub(super) fn objection(keyword: &str, argument: &Value, value: &Value) -> Option<String> {
    let says = |fits: bool, reason: &dyn Fn() -> String| (!fits).then(reason);
    match keyword {
        "const" => says(equal(argument, value), &|| format!("is not {}", quoted(argument))),
        "enum" => {
            let allowed = argument.as_array().is_some_and(|allowed| allowed.iter().any(|one| equal(one, value)));
            says(allowed, &|| format!("is none of {}", list(argument)))
        }
        "required" => required(argument, value),
        "minItems" => says(count(value)? >= argument.as_u64()?, &|| format!("has fewer than {argument} entries")),
        "maxItems" => says(count(value)? <= argument.as_u64()?, &|| format!("has more than {argument} entries")),
        "minLength" => says(length(value)? >= argument.as_u64()?, &|| format!("has less than {argument} characters")),
        "maxLength" => says(length(value)? <= argument.as_u64()?, &|| format!("has more than {argument} characters")),
        "minimum" => says(value.as_f64()? >= argument.as_f64()?, &|| format!("is less than {argument}")),
        "maximum" => says(value.as_f64()? <= argument.as_f64()?, &|| format!("is more than {argument}")),
        "exclusiveMinimum" => says(value.as_f64()? > argument.as_f64()?, &|| format!("is not more than {argument}")),
        "exclusiveMaximum" => says(value.as_f64()? < argument.as_f64()?, &|| format!("is not less than {argument}")),
        "pattern" => {
            let (pattern, text) = (argument.as_str()?, value.as_str()?);
            says(matches(pattern, text), &|| format!("does not match the pattern {}", quoted(argument)))
        }
        "format" => {
            value.as_str()?;
            let fits = is_valid(&json!({"format": argument}), value);
            says(fits, &|| format!("does not have the format {}", quoted(argument)))
        }
        _ => None,
    }
}

fn required(argument: &Value, value: &Value) -> Option<String> {
    let members = value.as_object()?;
    let names = argument.as_array()?.iter().filter_map(Value::as_str);
    let missing: Vec<&str> = names.filter(|name| !members.contains_key(*name)).collect();
    (!missing.is_empty()).then(|| format!("lacks {}", missing.join(", ")))
}

/// True if the pattern is found in the text. The host decides, whose work for a pattern is bounded.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    is_valid(&json!({"pattern": pattern}), &Value::from(text))
}

fn is_valid(by: &Value, value: &Value) -> bool {
    // An error is a pattern or a text that the host does not take.
    schema::validate(&by.to_string(), &value.to_string()).is_ok_and(|violations| violations.is_empty())
}

/// True if the value has the type, or one of the types.
pub(super) fn has_type(value: &Value, types: &Value) -> bool {
    let is = |name: &str| match (name, value) {
        ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("number", Value::Number(_))
        | ("null", Value::Null) => true,
        ("integer", Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => false,
    };
    match types {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

/// The values of a list, or a single value, for a violation.
pub(super) fn list(values: &Value) -> String {
    let all = values.as_array().map_or(std::slice::from_ref(values), Vec::as_slice);
    let names: Vec<String> =
        all.iter().map(|value| value.as_str().map_or_else(|| quoted(value), str::to_owned)).collect();
    cut(names.join(", "))
}

/// Equal as JSON Schema counts it: `1` is `1.0`.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

fn count(value: &Value) -> Option<u64> {
    u64::try_from(value.as_array()?.len()).ok()
}

fn length(value: &Value) -> Option<u64> {
    u64::try_from(value.as_str()?.chars().count()).ok()
}

fn quoted(value: &Value) -> String {
    cut(value.to_string())
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_QUOTE {
        let end = (0..=MAX_QUOTE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}
