//! A JSON value that keeps the text in which it arrived.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::{JsonObject, portable};

/// One valid JSON value, kept byte for byte. Clones share the text: message, event, session and task may all hold the same
/// value.
///
/// Numbers such as `1.0` or `9007199254740993`, the order of keys and the spacing inside one line survive decoding and
/// encoding. The one exception: a value that spans several lines loses the whitespace between its tokens, so that any
/// value fits into one `data:` line of an event stream.
///
/// Every reader can read the value ([`portable`](crate::portable)). It nests at most [`Json::MAX_DEPTH`] deep, so that
/// readers may use recursion. It has no half of a surrogate pair, no number beyond the range of a double and no object
/// with a repeated key. [`Json::parse`] refuses other values. A value that is decoded as a part of another text is
/// repaired instead ([`portable::repaired`](crate::portable::repaired)): either that text was checked already, or its
/// sender cannot be sent an error.
///
/// ```
/// use annex_protocol::Json;
///
/// let json = Json::parse("{\n  \"id\": 9007199254740993,\n  \"ratio\": 1.0\n}".to_owned())?;
/// assert_eq!(json.get(), r#"{"id":9007199254740993,"ratio":1.0}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

impl Json {
    /// The maximum depth to which arrays and objects nest in one value. The official reader for Python accepts 46
    /// levels in a value at the deepest position of an answer: the metadata of a part in a list of tasks.
    pub const MAX_DEPTH: usize = 40;

    /// Checks that `text` is exactly one JSON value and keeps it.
    ///
    /// # Errors
    /// When `text` is not valid JSON, or not portable. The error has the line and column, or the path of the value.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        Self::checked(RawValue::from_string(text)?)
    }

    /// Encodes `value`.
    ///
    /// # Errors
    /// When the `Serialize` implementation of `value` fails, or a map in `value` has keys that are not strings.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Self::checked(to_raw_value(value)?)
    }

    /// Encodes a value from a peer. Inner values that some readers cannot read are replaced, because the peer can no
    /// longer be sent an error.
    ///
    /// # Errors
    /// As for [`Json::from_serialize`]. A value that is replaced causes no error.
    pub fn from_peer<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Self::repaired(to_raw_value(value)?)
    }

    /// Encodes an object. The object adds a level of nesting to its values. Values that nest too deep with this level
    /// are replaced.
    pub(crate) fn of_object(object: &JsonObject) -> Result<Self, serde_json::Error> {
        let raw = to_raw_value(object)?;
        if portable::nests_deeper_than(raw.get(), Self::MAX_DEPTH) {
            Self::repaired(raw)
        } else {
            Self::on_one_line(raw)
        }
    }

    /// A JSON string with the content `text`.
    pub fn string(text: &str) -> Self {
        // Encoding a `str` into memory has no way to fail.
        Self(to_raw_value(text).unwrap_or_default().into())
    }

    /// The JSON text: no surrounding whitespace, no line breaks.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Decodes the value into an owned type.
    ///
    /// # Errors
    /// When the value does not have the shape of `T`.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        portable::checked(|| serde_json::from_str(self.get()))
    }

    /// Decodes the value into a type that may borrow from this text.
    ///
    /// # Errors
    /// When the value does not have the shape of `T`.
    pub fn deserialize<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        portable::checked(|| serde_json::from_str(self.get()))
    }

    /// Tells whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.get() == "null"
    }

    /// Tells whether arrays and objects nest deeper than `limit`.
    pub fn nests_deeper_than(&self, limit: usize) -> bool {
        portable::nests_deeper_than(self.get(), limit)
    }

    /// Wraps valid JSON. Fails if some readers cannot read the JSON.
    fn checked(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        // serde_json skips over a raw value without looking at its levels, escapes and digits.
        portable::check(raw.get()).map_err(serde::de::Error::custom)?;
        Self::on_one_line(raw)
    }

    /// Wraps valid JSON. Replaces the values that some readers cannot read.
    fn repaired(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        if portable::check(raw.get()).is_ok() {
            return Self::on_one_line(raw);
        }
        match portable::repaired(raw.get()) {
            Some(text) => Self::checked(RawValue::from_string(text)?),
            None => Self::checked(raw),
        }
    }

    fn on_one_line(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let text = raw.get();
        // JSON strings cannot hold raw line breaks, so any that is found stands between tokens.
        if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() {
            return Ok(Self(raw.into()));
        }
        // The whitespace has gone from between tokens only, so this is valid JSON still, and is checked all the same.
        let raw = RawValue::from_string(without_insignificant_whitespace(text))?;
        Ok(Self(raw.into()))
    }
}

fn without_insignificant_whitespace(json: &str) -> String {
    let mut in_string = false;
    let mut escaped = false;
    let mut compact = String::with_capacity(json.len());
    compact.extend(json.chars().filter(|&character| {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            return true;
        }
        in_string = character == '"';
        !matches!(character, ' ' | '\t' | '\n' | '\r')
    }));
    compact
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.get())
    }
}

/// Compares the texts: `1.0` and `1` are different values here.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Works with serde_json only. Other formats, and serde's buffering attributes, lose the original text.
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let json = if portable::is_checked() { Self::on_one_line(raw) } else { Self::repaired(raw) };
        json.map_err(serde::de::Error::custom)
    }
}
