//! A JSON object that keeps the order of its keys and the text of its values.

use std::fmt;
use std::sync::{Arc, LazyLock};

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::proto_json::{FieldValue, UniqueKeys};
use crate::{Json, portable};

/// A JSON object: keys in the order they arrived, values byte for byte. Clones share the entries until one
/// clone is changed: message and task may hold the same metadata, and event and session the same state delta.
///
/// Decoding refuses an object with a repeated key, because two readers could see different values.
///
/// ```
/// use annex_protocol::JsonObject;
///
/// let metadata = JsonObject::parse(r#"{"z": 1.0, "a": {"k": [ ]}}"#)?;
/// assert_eq!(metadata.keys().collect::<Vec<_>>(), ["z", "a"]);
/// assert_eq!(metadata.to_json_string(), r#"{"z":1.0,"a":{"k": [ ]}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct JsonObject(Option<Arc<Entries>>);

type Entries = IndexMap<String, Json>;

/// The free-form object that messages, artifacts, tasks and requests carry for extensions.
pub type Metadata = JsonObject;

impl JsonObject {
    /// An empty object; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `text`, which must be a JSON object.
    ///
    /// # Errors
    /// When `text` is not a JSON object, has a repeated key, or is not portable. The error names the key or the path of
    /// the value.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        match portable::check(text) {
            Ok(()) => portable::checked(|| serde_json::from_str(text)),
            // For text that is not an object, serde's error is clearer.
            Err(unportable) => {
                Err(serde_json::from_str::<Self>(text).err().unwrap_or_else(|| serde::de::Error::custom(unportable)))
            }
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.entries()?.get(key)
    }

    /// Sets the value of `key`, and returns the previous value. A new key is added at the end.
    pub fn insert(&mut self, key: String, value: Json) -> Option<Json> {
        self.change().insert(key, value)
    }

    /// Removes `key`; the other keys keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        // `swap_remove` would be faster and would move the last key to this place. The order of the keys belongs to the
        // client.
        if self.contains_key(key) { self.change().shift_remove(key) } else { None }
    }

    /// True if the object has `key`, even with the value `null`.
    pub fn contains_key(&self, key: &str) -> bool {
        self.entries().is_some_and(|entries| entries.contains_key(key))
    }

    /// Adds the entries of `other`. If both objects have a key, the value of `other` counts. An empty object takes over `other`
    /// without copying it.
    pub fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else {
            self.extend(other);
        }
    }

    /// Keeps only the entries for whose key `passes` returns true.
    pub fn retain_keys(&mut self, mut passes: impl FnMut(&str) -> bool) {
        // An object that stays as it is need not be copied.
        if self.keys().any(|key| !passes(key)) {
            self.change().retain(|key, _| passes(key));
        }
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json)> {
        self.map().iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.map().keys().map(String::as_str)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.map().len()
    }

    /// Tells whether the object has no entries.
    pub fn is_empty(&self) -> bool {
        self.map().is_empty()
    }

    fn entries(&self) -> Option<&Entries> {
        self.0.as_deref()
    }

    fn map(&self) -> &Entries {
        static NONE: LazyLock<Entries> = LazyLock::new(Entries::default);
        self.entries().unwrap_or(&NONE)
    }

    /// Gives access to the entries for a change. Copies them first if a clone shares them.
    fn change(&mut self) -> &mut Entries {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// The object as one value. If values in the object nest deeper than [`Json::MAX_DEPTH`], the deepest arrays and
    /// objects become text.
    ///
    /// # Errors
    /// No known object causes an error.
    pub fn to_json(&self) -> Result<Json, serde_json::Error> {
        Json::of_object(self)
    }

    /// The object as JSON text.
    pub fn to_json_string(&self) -> String {
        // Two quotes, a colon and a comma are four bytes more per entry.
        let size = self.iter().map(|(key, value)| key.len() + value.get().len() + 4).sum::<usize>();
        let mut text = String::with_capacity(size + 2);
        // Written by hand, because nothing here can fail: keys are strings, and values are valid JSON text already.
        text.push('{');
        for (index, (key, value)) in self.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(Json::string(key).get());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl Extend<(String, Json)> for JsonObject {
    fn extend<I: IntoIterator<Item = (String, Json)>>(&mut self, entries: I) {
        let mut entries = entries.into_iter().peekable();
        // An empty addition must not copy shared entries.
        if entries.peek().is_some() {
            self.change().extend(entries);
        }
    }
}

impl FromIterator<(String, Json)> for JsonObject {
    fn from_iter<I: IntoIterator<Item = (String, Json)>>(entries: I) -> Self {
        Entries::from_iter(entries).into()
    }
}

impl From<Entries> for JsonObject {
    fn from(entries: Entries) -> Self {
        Self((!entries.is_empty()).then(|| Arc::new(entries)))
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &Self) -> bool {
        self.map() == other.map()
    }
}

impl IntoIterator for JsonObject {
    type Item = (String, Json);
    type IntoIter = indexmap::map::IntoIter<String, Json>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(Arc::unwrap_or_clone).unwrap_or_default().into_iter()
    }
}

impl<'a> IntoIterator for &'a JsonObject {
    type Item = (&'a String, &'a Json);
    type IntoIter = indexmap::map::Iter<'a, String, Json>;

    fn into_iter(self) -> Self::IntoIter {
        self.map().iter()
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.map())
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueKeys::new()).map(Self::from)
    }
}

impl FieldValue for JsonObject {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}
