//! Converts Rust values to JSON text, for fields of the contract that hold JSON.

use serde::Serialize;

use crate::Json;

/// The JSON text of a value. Fails if the `Serialize` implementation of the value fails, or if a map key is not a
/// string.
pub fn text<T: Serialize + ?Sized>(value: &T) -> Result<Json, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// A string as a JSON string, quoted and escaped.
pub fn string(value: &str) -> Json {
    // A string always has a JSON text, so this way has no error to pass on.
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_quoted_and_escaped() {
        assert_eq!(string("say \"hi\"\n"), r#""say \"hi\"\n""#);
    }

    #[test]
    fn a_value_becomes_its_json_text() {
        assert_eq!(text(&[Some(1), None]), Ok("[1,null]".to_owned()));
    }
}
