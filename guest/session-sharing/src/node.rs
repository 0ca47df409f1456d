//! JSON from a peer, with its JSON pointer in the request, so that each violation can name where the fault is.

use annex_sdk::members::Members;
use annex_sdk::{Violation, pointer};
use serde_json::value::RawValue;

/// The largest integer that every JSON parser keeps exactly: 2^53 - 1.
pub const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A JSON value with its pointer.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    json: &'a str,
    pointer: String,
}

impl<'a> Node<'a> {
    /// The value at `pointer`.
    pub fn new(json: &'a str, pointer: impl Into<String>) -> Self {
        Self { json, pointer: pointer.into() }
    }

    /// The JSON text of the value.
    pub fn json(&self) -> &'a str {
        self.json
    }

    /// A violation at this value; `message` is a lower-case fragment.
    pub fn violation(&self, message: impl Into<String>) -> Violation {
        Violation::new(self.pointer.clone(), message)
    }

    /// The value as an object. A repeated key is a violation.
    pub fn object(&self) -> Result<Object<'a>, Violation> {
        let members = Members::of(self.json).ok_or_else(|| self.violation("must be a JSON object"))?;
        // Readers differ in which of two values they take for one key.
        if let Some(key) = members.repeated() {
            return Err(Violation::new(pointer::child(&self.pointer, key), "must not be sent twice"));
        }
        Ok(Object { members, pointer: self.pointer.clone() })
    }

    /// The value as an array.
    pub fn list(&self) -> Result<Vec<Node<'a>>, Violation> {
        let elements: Vec<&RawValue> =
            serde_json::from_str(self.json).map_err(|_| self.violation("must be an array"))?;
        let node =
            |(index, element): (usize, &'a RawValue)| Node::new(element.get(), format!("{}/{index}", self.pointer));
        Ok(elements.into_iter().enumerate().map(node).collect())
    }

    /// The value as a string.
    pub fn text(&self) -> Result<String, Violation> {
        serde_json::from_str(self.json).map_err(|_| self.violation("must be a string"))
    }

    /// The value as an integer from 0 to [`MAX_NUMBER`].
    pub fn number(&self) -> Result<u64, Violation> {
        let number = serde_json::from_str(self.json).ok().filter(|number| *number <= MAX_NUMBER);
        number.ok_or_else(|| self.violation(format!("must be a whole number from 0 to {MAX_NUMBER}")))
    }

    /// The value as a boolean.
    pub fn flag(&self) -> Result<bool, Violation> {
        serde_json::from_str(self.json).map_err(|_| self.violation("must be true or false"))
    }
}

/// A JSON object, with its JSON pointer in the request.
#[derive(Debug)]
pub struct Object<'a> {
    members: Members<'a>,
    pointer: String,
}

impl<'a> Object<'a> {
    /// The member `name`. `null` counts as absent.
    pub fn get(&self, name: &str) -> Option<Node<'a>> {
        // ProtoJSON takes `null` for a field that is absent.
        let json = self.members.get(name).filter(|json| *json != "null")?;
        Some(Node::new(json, pointer::child(&self.pointer, name)))
    }

    /// The required member `name`.
    pub fn need(&self, name: &str) -> Result<Node<'a>, Violation> {
        self.get(name).ok_or_else(|| Violation::new(pointer::child(&self.pointer, name), "is required"))
    }

    /// The number `name`; 0 if absent.
    pub fn number_or_zero(&self, name: &str) -> Result<u64, Violation> {
        self.get(name).map_or(Ok(0), |node| node.number())
    }

    /// The boolean `name`; false if absent.
    pub fn is_set(&self, name: &str) -> Result<bool, Violation> {
        self.get(name).map_or(Ok(false), |node| node.flag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_by_its_pointer() {
        let node = Node::new(r#"{"a/b": [1, "x", -1, 9007199254740992, 1.0], "t": null}"#, "/base");
        let object = node.object().unwrap();
        let list = object.need("a/b").unwrap().list().unwrap();
        assert_eq!(list[0].number(), Ok(1));
        for wrong in &list[1..] {
            assert!(wrong.number().unwrap_err().pointer.starts_with("/base/a~1b/"), "{wrong:?}");
        }
        assert_eq!(list[2].text().unwrap_err().pointer, "/base/a~1b/2");
        assert_eq!(object.need("t").unwrap_err().pointer, "/base/t");
        assert_eq!(object.is_set("t"), Ok(false));
        assert_eq!(Node::new(r#"{"k": 1, "k": 2}"#, "").object().unwrap_err().pointer, "/k");
        assert!(Node::new("[]", "").object().is_err() && Node::new("{}", "").list().is_err());
    }
}
