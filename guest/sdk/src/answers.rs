//! Short ways to make the contract's records.

use crate::{Declaration, Descriptor, EventKinds, ExtensionError, Json, Patch, Rejection, Violation};

impl Descriptor {
    /// An extension without parameters, keys, dependencies, grants or events. Set the fields that differ:
    /// `Descriptor { events: EventKinds::MESSAGE, ..Descriptor::new(uri, description) }`.
    pub fn new(uri: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: String::new(),
            version: String::new(),
            description: description.into(),
            parameter_schema: None,
            metadata_keys: Vec::new(),
            depends_on: Vec::new(),
            grants: Vec::new(),
            events: EventKinds::empty(),
            payload: false,
        }
    }
}

impl Default for Declaration {
    /// The descriptor's description, no params.
    fn default() -> Self {
        Self { description: None, params: None }
    }
}

impl Patch {
    /// One metadata entry; `value` is JSON text.
    pub fn entry(key: impl Into<String>, value: impl Into<Json>) -> Self {
        Self { metadata: vec![(key.into(), value.into())] }
    }
}

impl Violation {
    /// `pointer` is relative to the request, `message` a lower-case fragment.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

impl From<Violation> for Rejection {
    fn from(violation: Violation) -> Self {
        Self::Violations(vec![violation])
    }
}

impl From<ExtensionError> for Rejection {
    fn from(error: ExtensionError) -> Self {
        Self::Error(error)
    }
}
