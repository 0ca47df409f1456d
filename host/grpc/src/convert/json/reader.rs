//! Converts JSON text to protobuf values in one pass. It reads the digits of numbers, which serde_json's own values
//! lose.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde::Deserialize;
use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::double::double_of;
use crate::convert::{FieldError, at};

/// Reads the text of a [`Json`](annex_protocol::Json). The text is valid and nests at most `Json::MAX_DEPTH` deep,
/// which limits the depth of the recursion.
pub(super) struct Reader<'a> {
    rest: &'a str,
    /// The number of protobuf messages around the next value.
    depth: usize,
}

/// The maximum depth to which protobuf messages nest in a value. Readers of protobuf allow a hundred, and in an answer
/// up to ten messages are around the value.
const MAX_DEPTH: usize = 90;
/// The number of messages that an object adds around each of its values: the `Value`, the `Struct` and the map entry.
const OBJECT: usize = 3;
/// The number of messages that an array adds around each of its values: the `Value` and the `ListValue`.
const ARRAY: usize = 2;

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, depth: 0 }
    }

    /// Reads the next value.
    ///
    /// # Errors
    /// When a number has no equal double, or a string contains half a surrogate pair, which JSON allows and protobuf
    /// does not.
    pub(super) fn value(&mut self) -> Result<Value, FieldError> {
        self.rest = self.rest.trim_ascii_start();
        let kind = match self.rest.as_bytes() {
            [b'{', ..] => Kind::StructValue(Struct { fields: self.within(OBJECT, Self::entries)? }),
            [b'[', ..] => Kind::ListValue(ListValue { values: self.within(ARRAY, Self::items)? }),
            // serde_json reads scalars, so that escapes and surrogates are checked in one place.
            [b'"', ..] => Kind::StringValue(self.scalar()?),
            [b't' | b'f', ..] => Kind::BoolValue(self.scalar()?),
            [b'n', ..] => self.scalar().map(|()| Kind::NullValue(0))?,
            _ => Kind::NumberValue(double_of(self.scalar::<&RawValue>()?.get())?),
        };
        Ok(Value { kind: Some(kind) })
    }

    fn within<T>(&mut self, messages: usize, read: fn(&mut Self) -> Result<T, FieldError>) -> Result<T, FieldError> {
        self.depth += messages;
        if self.depth > MAX_DEPTH {
            return Err(FieldError::not_carried("arrays and objects nest deeper than readers of protobuf go"));
        }
        let inside = read(self)?;
        self.depth -= messages;
        Ok(inside)
    }

    fn entries(&mut self) -> Result<BTreeMap<String, Value>, FieldError> {
        let mut entries = BTreeMap::new();
        while self.has_next() {
            let key: String = self.scalar()?;
            self.step(); // over the colon
            let value = self.value().map_err(|error| error.within(&key))?;
            entries.insert(key, value);
        }
        Ok(entries)
    }

    fn items(&mut self) -> Result<Vec<Value>, FieldError> {
        let mut items = Vec::new();
        while self.has_next() {
            items.push(self.value().map_err(|error| error.within(at("", items.len())))?);
        }
        Ok(items)
    }

    /// Skips the separator before the next member or item, or the closing bracket. Returns true if a member or item
    /// follows.
    fn has_next(&mut self) -> bool {
        match self.step() {
            // In an empty object or list the closing bracket follows at once, and there is no entry to read.
            Some('{' | '[') if self.rest.trim_ascii_start().starts_with(['}', ']']) => {
                self.step();
                false
            }
            Some('{' | '[' | ',') => true,
            _ => false,
        }
    }

    /// Skips white space and one character. Returns that character.
    fn step(&mut self) -> Option<char> {
        let mut rest = self.rest.trim_ascii_start().chars();
        let stepped_over = rest.next();
        self.rest = rest.as_str();
        stepped_over
    }

    fn scalar<T: Deserialize<'a>>(&mut self) -> Result<T, FieldError> {
        let mut values = Deserializer::from_str(self.rest).into_iter::<T>();
        let value = values.next();
        self.rest = self.rest.get(values.byte_offset()..).unwrap_or_default();
        match value {
            Some(value) => value.map_err(FieldError::not_carried),
            None => Err(FieldError::new("", "the JSON text ends too early")),
        }
    }
}
