//! The bytes that a signature covers.

use annex_protocol::{Json, JsonObject};
use serde::de::Error as _;
use serde_json::{Map, Number, Value};

use crate::signature::defaults::without_defaults;

/// The longest JSON text of a card, in bytes. Real cards are far shorter.
const MAX_CARD_BYTES: usize = 512 * 1024;
/// 2^53 − 1, the largest integer n such that n and n + 1 are different doubles.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The rule by which empty values of a card are omitted from the signed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanonicalForm {
    /// The rule of the specification: optional fields with default values are omitted.
    Specification,
    /// The rule of the official SDKs: every empty string, array and object, and every `null`, is omitted, also in
    /// extension parameters. The signature does not cover such values.
    WithoutEmptyValues,
}

/// The reason why a card has no canonical form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The card is longer than 512 KiB.
    #[error("the card is longer than {MAX_CARD_BYTES} bytes")]
    TooLarge,
    /// The text is not a JSON object, or readers may understand it differently. That is so if an object has a key
    /// twice, if values nest deeper than [`Json::MAX_DEPTH`], if text is not Unicode, or if a number is beyond the
    /// range of doubles.
    #[error("the card is not a JSON object that all readers understand alike")]
    NotJson(#[from] serde_json::Error),
    /// The card contains an integer beyond ±(2^53 − 1).
    #[error("the integer {0} is beyond what RFC 8785 can represent")]
    Integer(String),
}

/// Reads the values of a card as its author wrote them, without `signatures`.
pub(crate) fn read_card(card_json: &str) -> Result<Value, CanonicalError> {
    if card_json.len() > MAX_CARD_BYTES {
        return Err(CanonicalError::TooLarge);
    }
    let mut card = JsonObject::parse(card_json)?;
    // Section 8.4: the payload is the card without its signatures, so that a card can have several.
    card.remove("signatures");
    read_object(&card)
}

/// The canonical bytes of a card, which a signature covers.
pub(crate) fn canonical_bytes(card: Value, form: CanonicalForm) -> Result<Vec<u8>, CanonicalError> {
    let card = match form {
        CanonicalForm::Specification => without_defaults(card),
        CanonicalForm::WithoutEmptyValues => without_empty_values(card).unwrap_or_else(|| Value::Object(Map::new())),
    };
    // The canonicalizer sorts keys by UTF-16, so the order in `card` and serde_json's feature preserve_order do not
    // matter.
    Ok(serde_json_canonicalizer::to_vec(&card)?)
}

/// Reads a value from its text, one level after the other. serde_json is not asked for the whole `Value` at once, because it
/// would drop repeated keys and write numbers in another form.
fn read(json: &Json) -> Result<Value, CanonicalError> {
    match json.get().as_bytes() {
        [b'{', ..] => read_object(&json.to()?),
        [b'[', ..] => {
            let items: Vec<Json> = json.to()?;
            items.iter().map(read).collect::<Result<_, _>>().map(Value::Array)
        }
        [b'-' | b'0'..=b'9', ..] => read_number(json.get()),
        _ => Ok(json.to()?),
    }
}

fn read_object(object: &JsonObject) -> Result<Value, CanonicalError> {
    let entries = object.iter().map(|(key, value)| Ok((key.to_owned(), read(value)?)));
    entries.collect::<Result<_, CanonicalError>>().map(Value::Object)
}

pub(crate) fn read_number(text: &str) -> Result<Value, CanonicalError> {
    let digits = text.trim_start_matches('-');
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_integer && !digits.parse::<u64>().is_ok_and(|integer| integer <= MAX_SAFE_INTEGER) {
        return Err(CanonicalError::Integer(shortened(text)));
    }
    // The standard library always rounds correctly, serde_json only with its feature float_roundtrip.
    let double = text.parse::<f64>().ok().and_then(Number::from_f64);
    // `JsonObject::parse` has refused numbers beyond the range of doubles.
    let beyond = || serde_json::Error::custom("a number is beyond the range of doubles");
    Ok(Value::Number(double.ok_or_else(beyond)?))
}

/// The first 40 characters of a number, for an error text. A number may have as many digits as fit into a card.
fn shortened(number: &str) -> String {
    number.chars().take(40).collect()
}

fn without_empty_values(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().filter_map(without_empty_values).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(entries) => {
            let entries = entries.into_iter().filter_map(|(key, value)| Some((key, without_empty_values(value)?)));
            let entries: Map<String, Value> = entries.collect();
            (!entries.is_empty()).then_some(Value::Object(entries))
        }
        Value::Bool(_) | Value::Number(_) => Some(value),
    }
}

#[cfg(test)]
mod tests;
