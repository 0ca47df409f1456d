//! Identifiers, each with a type of its own, so that the compiler refuses a context id in place of a task id. Clones share the
//! text, because many values of a task contain the same ids.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::proto_json::FieldValue;

macro_rules! string_ids {
    ($($(#[$attribute:meta])* $name:ident;)+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts any text unchanged: ids are opaque and compared exactly.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Tells whether the text is empty, which on the wire is the same as absent.
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
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        /// Returns the text without copying it.
        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor).map(Self)
            }
        }

        // Maps by id are searched with a `&str`: the derived `Hash` and `Ord` are those of the text, as `Borrow`
        // demands.
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

/// Reads a text directly into the allocation that all clones share.
struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Arc<str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
        // One copy: serde's own way to an `Arc<str>` makes a `String` first.
        Ok(text.into())
    }
}

macro_rules! generated_ids {
    ($($name:ident),+) => {$(
        impl $name {
            /// Creates a new id: the time in milliseconds and 74 random bits (UUID version 7). The random bits make the
            /// id unguessable. Ids of the same time have the same beginning, so a database stores their rows next to
            /// each other.
            pub fn generate() -> Self {
                Self(generated())
            }
        }
    )+};
}

fn generated() -> Arc<str> {
    // A clock before 1970 counts as 1970. The random bits alone tell ids apart then.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Without a counter, which would replace random bits.
    let time = uuid::Timestamp::from_unix(uuid::NoContext, now.as_secs(), now.subsec_nanos());
    let mut text = uuid::Uuid::encode_buffer();
    Arc::from(&*uuid::Uuid::new_v7(time).hyphenated().encode_lower(&mut text))
}

string_ids! {
    /// Names one task. Only servers create task ids.
    TaskId;
    /// Names the conversation that messages and tasks belong to.
    ContextId;
    /// Names one message. The sender of the message creates its id.
    MessageId;
    /// Names one artifact within its task.
    ArtifactId;
    /// Names one version of one extension. Compared exactly, never normalised and never fetched.
    ExtensionUri;
}

// `ExtensionUri` has no `generate`: the author of the extension chooses the URI.
generated_ids!(TaskId, ContextId, MessageId, ArtifactId);
