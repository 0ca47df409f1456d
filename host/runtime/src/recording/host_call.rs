//! The calls of the guest in a recorded step, and their answers.

use annex_protocol::Json;
use serde::{Deserialize, Serialize};

/// A recorded call of the guest. Its answer depends on more than the input of the step, or it changes something outside
/// of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum HostCall {
    /// Reads the time since 1970.
    Time {
        /// Whole seconds.
        seconds: u64,
        /// Nanoseconds of the second.
        nanoseconds: u32,
    },
    /// Reads the monotonic clock.
    Monotonic {
        /// Nanoseconds since an arbitrary moment.
        nanoseconds: u64,
    },
    /// Reads random bytes.
    Random(Octets),
    /// Reads a key.
    Get {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
        /// The value; absent if the key does not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Octets>,
    },
    /// Sets a key.
    Set {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
        /// The new value.
        value: Octets,
    },
    /// Deletes a key.
    Delete {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
    },
    /// Increments a counter.
    Increment {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
        /// The increment.
        by: u64,
        /// The new value.
        value: u64,
    },
    /// Lists keys.
    Keys {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// Number of skipped keys.
        skip: u64,
        /// The page of keys.
        keys: Vec<String>,
    },
    /// Lists tasks.
    Tasks {
        /// A ListTasksRequest as JSON.
        request: String,
        /// A ListTasksResponse; absent on error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Json>,
        /// The error message for the extension.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Resumes a task.
    Resume {
        /// The id of the task to resume.
        task_id: String,
        /// Why the task cannot be resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Sets an entry of the task's metadata.
    TaskMetadata {
        /// The name of the entry.
        key: String,
        /// The value, as the extension wrote it.
        value: String,
        /// The error message for the extension.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Sends an HTTP request. Its header fields are not recorded, because they may contain data derived from a
    /// secret.
    Http {
        /// Method and URL.
        request: String,
        /// The body that the guest sent.
        body: Octets,
        /// The answer; absent if there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<HttpAnswer>,
    },
}

/// The answer to an HTTP request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Recorded header fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body that the guest received.
    pub body: Octets,
}

/// Bytes, stored as text if they are UTF-8, and in hexadecimal otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Octets {
    /// UTF-8 text.
    Text(String),
    /// Two hexadecimal digits per byte.
    Hex(String),
}

impl Octets {
    /// The bytes. Empty if the text is not valid hexadecimal.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex(digits) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let byte = |pair: &[u8]| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?);
                digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>().unwrap_or_default()
            }
        }
    }
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}
