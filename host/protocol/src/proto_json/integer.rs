//! Reads `int32` fields from JSON numbers and from numbers in quotes.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

use super::FieldValue;

impl FieldValue for i32 {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor)
    }

    fn is_default(&self) -> bool {
        *self == 0
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = i32;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a 32-bit integer")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i32, E> {
        i32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i32, E> {
        i32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    /// Accepts an integer that is written as `1.0` or `1e2`, as ProtoJSON requires.
    fn visit_f64<E: Error>(self, number: f64) -> Result<i32, E> {
        let is_integer = number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
        if !is_integer {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        // The cast is exact: the value is an integer within the range.
        Ok(number as i32)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i32, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}
