//! Parses JSON of tokens. Repeated members are refused, because readers would choose different values, and the depth is
//! bounded.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum depth of arrays and objects in a part of a token. Mandates need ten levels.
const MAX_DEPTH: usize = 32;

/// Parses a JSON text. `None` if the text is not JSON, names a member of an object twice, or is too deep.
pub fn parse(text: &str) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Level(MAX_DEPTH).deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(value)
}

/// Reads one value. The number is the count of levels that the value may have.
#[derive(Clone, Copy)]
struct Level(usize);

impl Level {
    fn below<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without repeated members")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let below = self.below::<A::Error>()?;
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(below)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let below = self.below::<A::Error>()?;
        let mut object = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let value = access.next_value_seed(below)?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a repeated member"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_the_common_parser_reads_it() {
        let text = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, "\u00e4"], "b": {"a": {}}}"#;
        assert_eq!(parse(text), serde_json::from_str(text).ok());
        for text in ["", "{", "1 2", "{\"a\":}", "nul"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_repeated_member_and_a_deep_value_are_refused() {
        assert_eq!(parse(r#"{"a": {"b": 1, "b": 1}}"#), None);
        assert_eq!(parse(r#"{"a": 1, "\u0061": 1}"#), None);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_some());
        assert_eq!(parse(&nested(MAX_DEPTH + 1)), None);
        assert_eq!(parse(&nested(100_000)), None);
    }
}
