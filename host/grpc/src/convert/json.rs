//! Free-form JSON as `google.protobuf.Struct` and `Value`.
//!
//! Numbers become doubles. An integer without an equal double is refused, and a whole double is read as an integer,
//! without `.0`.
//!
//! Protobuf has values that JSON does not have. A request with such a value is refused. In an answer the value is
//! replaced: a number by its name in ProtoJSON, and a missing value by `null`.

mod double;
mod reader;

use annex_protocol::{Json, JsonObject};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::Number;

use self::reader::Reader;
use super::{FieldError, FromProto, IntoProto, read, reads_answer, write};

impl FromProto<Value> for Json {
    fn from_proto(proto: Value) -> Result<Self, FieldError> {
        let value = json(proto)?;
        // Also checks that the value nests at most `Json::MAX_DEPTH` deep.
        let read = if reads_answer() { Self::from_peer(&value) } else { Self::from_serialize(&value) };
        read.map_err(|error| FieldError::new("", error.to_string()))
    }
}

impl FromProto<Struct> for JsonObject {
    fn from_proto(proto: Struct) -> Result<Self, FieldError> {
        let entry = |(key, value): (String, Value)| {
            let value = read(&key, value)?;
            Ok((key, value))
        };
        proto.fields.into_iter().map(entry).collect()
    }
}

/// Converts a value to JSON. The depth of the recursion is limited, because prost refuses messages that nest deeper
/// than 100.
fn json(value: Value) -> Result<serde_json::Value, FieldError> {
    match value.kind {
        Some(Kind::NullValue(_)) => Ok(serde_json::Value::Null),
        Some(Kind::NumberValue(double)) => match number(double) {
            Some(number) => Ok(serde_json::Value::Number(number)),
            None if reads_answer() => Ok(serde_json::Value::String(name_of(double).to_owned())),
            // NaN and the infinities are doubles, and JSON has neither.
            None => Err(FieldError::new("", format!("{double} is not a number in JSON"))),
        },
        Some(Kind::StringValue(text)) => Ok(serde_json::Value::String(text)),
        Some(Kind::BoolValue(flag)) => Ok(serde_json::Value::Bool(flag)),
        Some(Kind::StructValue(object)) => {
            let entries = object.fields.into_iter().map(|(key, value)| Ok((key, json(value)?)));
            entries.collect::<Result<_, _>>().map(serde_json::Value::Object)
        }
        Some(Kind::ListValue(list)) => {
            list.values.into_iter().map(json).collect::<Result<_, _>>().map(serde_json::Value::Array)
        }
        None if reads_answer() => Ok(serde_json::Value::Null),
        // JSON has no equivalent for a value without a kind; `null` is a kind of its own.
        None => Err(FieldError::new("", "a google.protobuf.Value without a value in it")),
    }
}

/// The JSON number; `None` for an infinity or NaN.
fn number(double: f64) -> Option<Number> {
    // Both bounds are exact doubles; the upper one is the first that does not fit.
    const INTEGERS: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    let is_integer = double.fract() == 0.0 && INTEGERS.contains(&double);
    let is_negative_zero = double == 0.0 && double.is_sign_negative();
    // No integer is a negative zero, so that stays a double.
    if is_integer && !is_negative_zero {
        return Some(Number::from(double as i64));
    }
    Number::from_f64(double)
}

/// The name that ProtoJSON has for a double that JSON cannot express, such as `Infinity`.
fn name_of(double: f64) -> &'static str {
    if double.is_nan() {
        "NaN"
    } else if double.is_sign_negative() {
        "-Infinity"
    } else {
        "Infinity"
    }
}

impl IntoProto<Value> for Json {
    fn into_proto(self) -> Result<Value, FieldError> {
        // Not through serde_json's own values: they turn an integer beyond 64 bits into a double without a word.
        Reader::new(self.get()).value()
    }
}

impl IntoProto<Struct> for JsonObject {
    fn into_proto(self) -> Result<Struct, FieldError> {
        let entry = |(key, value): (String, Json)| {
            let value = write(&key, value)?;
            Ok((key, value))
        };
        Ok(Struct { fields: self.into_iter().map(entry).collect::<Result<_, FieldError>>()? })
    }
}

/// Converts metadata to a struct; `None` for an empty object.
pub(super) fn write_metadata(field: &str, metadata: JsonObject) -> Result<Option<Struct>, FieldError> {
    if metadata.is_empty() { Ok(None) } else { write(field, metadata).map(Some) }
}
