//! JSON pointers (RFC 6901) for violations.

use crate::{Location, MetadataEntry};

impl MetadataEntry {
    /// The pointer to this metadata entry in the request: `/message/metadata/<key>` or `/metadata/<key>`, with the key
    /// escaped.
    pub fn pointer(&self) -> String {
        metadata(self.location, &self.key)
    }
}

/// The pointer to a metadata entry, which need not exist.
pub fn metadata(location: Location, key: &str) -> String {
    match location {
        Location::Message => child("/message/metadata", key),
        Location::Request => child("/metadata", key),
    }
}

/// The pointer to the member `key` of the value at `parent`.
pub fn child(parent: &str, key: &str) -> String {
    let mut pointer = String::with_capacity(parent.len() + key.len() + 8);
    pointer.push_str(parent);
    pointer.push('/');
    // RFC 6901, section 3.
    for character in key.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_as_a_key_is_one_escaped_token() {
        assert_eq!(
            metadata(Location::Message, "github.com/a~b/v1/state"),
            "/message/metadata/github.com~1a~0b~1v1~1state"
        );
    }

    #[test]
    fn metadata_of_the_request_has_its_own_place() {
        let entry = MetadataEntry { location: Location::Request, key: "k".to_owned(), value: "1".to_owned() };
        assert_eq!(entry.pointer(), "/metadata/k");
    }

    #[test]
    fn an_empty_key_is_a_token_too() {
        assert_eq!(child("/message", ""), "/message/");
    }
}
