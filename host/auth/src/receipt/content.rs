//! The digests of messages and artifacts in receipts.

use std::fmt;

use ring::digest::{SHA256, digest};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::signature::CanonicalError;
use crate::signature::canonical::read_number;

/// The maximum depth of a message or an artifact. User data nests at most 40 deep, and lies in the parts of an object.
const MAX_DEPTH: usize = 64;

/// The digest of a message or an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDigest {
    /// The id of the message or the artifact.
    pub id: String,
    /// SHA-256 of its JSON in the canonical form of RFC 8785, as 64 hexadecimal digits. `None` if the JSON has no canonical form,
    /// because of an integer beyond ±(2^53 − 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The digests of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerDigests {
    /// The artifacts of the task at the end of the turn, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ContentDigest>,
    /// The message of the task's status, or the message that is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<ContentDigest>,
}

impl ContentDigest {
    /// The digest of a message or an artifact with the id `id`.
    #[must_use]
    pub fn of<T: Serialize + ?Sized>(id: &str, content: &T) -> Self {
        let sha256 = serde_json::to_string(content).ok().and_then(|json| canonical_sha256(&json).ok());
        Self { id: id.to_owned(), sha256 }
    }
}

/// SHA-256 of bytes, as 64 hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a JSON text in its canonical form.
pub(super) fn canonical_sha256(json: &str) -> Result<String, CanonicalError> {
    value_sha256(&value_of(json)?)
}

/// SHA-256 of a value from [`value_of`] in its canonical form.
pub(super) fn value_sha256(value: &Value) -> Result<String, CanonicalError> {
    Ok(sha256(&serde_json_canonicalizer::to_vec(value)?))
}

/// Reads a JSON text whose values all have a canonical form.
pub(super) fn value_of(json: &str) -> Result<Value, CanonicalError> {
    read(serde_json::from_str(json)?, 0)
}

/// Reads a value, one level after the other, so that repeated keys are found and numbers keep their text.
fn read(json: &RawValue, depth: usize) -> Result<Value, CanonicalError> {
    if depth > MAX_DEPTH {
        return Err(serde_json::Error::custom("the JSON nests too deep").into());
    }
    match json.get().as_bytes() {
        [b'{', ..] => {
            let mut object = Map::new();
            for (key, value) in serde_json::from_str::<Members<'_>>(json.get())?.0 {
                if object.insert(key, read(value, depth + 1)?).is_some() {
                    return Err(serde_json::Error::custom("an object has a key twice").into());
                }
            }
            Ok(Value::Object(object))
        }
        [b'[', ..] => {
            let items: Vec<&RawValue> = serde_json::from_str(json.get())?;
            items.into_iter().map(|item| read(item, depth + 1)).collect::<Result<_, _>>().map(Value::Array)
        }
        [b'-' | b'0'..=b'9', ..] => read_number(json.get()),
        _ => Ok(serde_json::from_str(json.get())?),
    }
}

/// The members of an object, in order and with repetitions.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
