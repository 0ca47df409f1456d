//! Constructors for the contract's records.

use crate::{
    Addition, Declaration, Descriptor, EventKinds, ExtensionError, Json, Location, MetadataEntry, MethodDeclaration,
    Patch, Rejection, Violation,
};

impl Descriptor {
    /// A descriptor without parameters, keys, dependencies, grants or events. Set the fields that differ: `Descriptor {
    /// events: EventKinds::MESSAGE, ..Descriptor::new(uri, description) }`.
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
    /// A declaration with the descriptor's description and without params.
    fn default() -> Self {
        Self { description: None, params: None }
    }
}

impl Patch {
    /// A metadata entry; `value` is JSON text.
    pub fn entry(key: impl Into<String>, value: impl Into<Json>) -> Self {
        Self { metadata: vec![(key.into(), value.into())] }
    }
}

impl MethodDeclaration {
    /// A method that accepts any object and answers with one value. Set the fields that differ.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            params_schema: None,
            result_schema: None,
            streams: false,
        }
    }
}

impl Addition {
    /// An addition without entries and without the extension's URI: the extension does not take part in the call.
    #[must_use]
    pub fn none() -> Self {
        Self { activate: false, metadata: Vec::new() }
    }

    /// An addition of the extension's URI only.
    #[must_use]
    pub fn activation() -> Self {
        Self { activate: true, metadata: Vec::new() }
    }

    /// An addition of the extension's URI and one entry of the message's metadata; `value` is JSON text.
    pub fn entry(key: impl Into<String>, value: impl Into<Json>) -> Self {
        let entry = MetadataEntry { location: Location::Message, key: key.into(), value: value.into() };
        // An agent reads the entry only if the extension is active.
        Self { activate: true, metadata: vec![entry] }
    }
}

impl Violation {
    /// A violation. `pointer` is relative to the request, and `message` is a lower-case fragment, such as `is not a
    /// number`.
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
