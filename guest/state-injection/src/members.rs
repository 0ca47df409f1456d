//! The members of a JSON object, keys decoded and values as the text that was sent.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON object that is looked at one level deep. A key that was sent twice is there twice.
#[derive(Debug, Default)]
pub struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// `None` when the text is not one JSON object.
    pub fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Whether the object has no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys, in the order in which they were sent.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// A key that was sent more than once: whoever reads on may take the one value or the other.
    pub fn repeated(&self) -> Option<&str> {
        let mut keys: Vec<&str> = self.keys().collect();
        keys.sort_unstable();
        keys.windows(2).find_map(|pair| match pair {
            [first, second] if first == second => Some(*first),
            _ => None,
        })
    }

    /// Keys and the JSON text of their values, in the order in which they were sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.get()))
    }

    /// The JSON text of a member's value; of a key that is there twice, the last one, as parsers have it.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
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
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_and_values_stay_as_they_were_sent() {
        let members = Members::of(r#" {"b\u0041": 1e2, "a": {"z": 9007199254740993}} "#).unwrap();
        let found: Vec<_> = members.iter().collect();
        assert_eq!(found, [("bA", "1e2"), ("a", r#"{"z": 9007199254740993}"#)]);
    }

    #[test]
    fn of_two_members_with_one_name_the_last_counts() {
        let members = Members::of(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap();
        assert_eq!(members.get("a"), Some("3"));
        assert_eq!(members.get("c"), None);
        assert_eq!(members.repeated(), Some("a"));
        assert_eq!(Members::of(r#"{"a": 1, "A": 2}"#).unwrap().repeated(), None);
    }

    #[test]
    fn only_an_object_has_members() {
        for json in ["null", "[]", "\"{}\"", "1", "{", "{} {}", ""] {
            assert!(Members::of(json).is_none(), "{json}");
        }
        assert!(Members::of("{}").unwrap().is_empty());
    }
}
