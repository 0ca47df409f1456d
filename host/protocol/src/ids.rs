//! Identifiers as types of their own, so that a context id cannot be passed where a task id is wanted.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::proto_json::FieldValue;

macro_rules! string_ids {
    ($($(#[$attribute:meta])* $name:ident;)+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes any text as it is: ids are opaque and compared exactly.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the text is empty, which on the wire is the same as absent.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FieldValue for $name {
            const EMPTY_IS_ABSENT: bool = true;

            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize(deserializer)
            }

            fn is_default(&self) -> bool {
                self.is_empty()
            }
        }
    )+};
}

macro_rules! generated_ids {
    ($($name:ident),+) => {$(
        impl $name {
            /// A new id: the time in milliseconds and 74 random bits (UUID version 7), so that nobody guesses it, and
            /// what is stored under new ids lies together.
            pub fn generate() -> Self {
                Self(generated())
            }
        }
    )+};
}

fn generated() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Without a counter, which would take the place of random bits.
    let time = uuid::Timestamp::from_unix(uuid::NoContext, now.as_secs(), now.subsec_nanos());
    uuid::Uuid::new_v7(time).to_string()
}

string_ids! {
    /// Names one task; only servers make them up.
    TaskId;
    /// Names the conversation that messages and tasks belong to.
    ContextId;
    /// Names one message; its sender makes it up.
    MessageId;
    /// Names one artifact within its task.
    ArtifactId;
    /// Names one version of one extension. Compared exactly, never normalised and never fetched.
    ExtensionUri;
}

generated_ids!(TaskId, ContextId, MessageId, ArtifactId);
