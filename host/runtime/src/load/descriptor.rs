//! The descriptor of a component.

use annex_protocol::ExtensionUri;

use crate::contract::Events;

/// The checked descriptor of a component.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// URI of the extension, which includes its version.
    pub uri: ExtensionUri,
    /// Short name of the extension.
    pub name: String,
    /// Version of the component.
    pub version: String,
    /// Description of the extension in one sentence, for the Agent Card.
    pub description: String,
    /// JSON Schema of the parameters, as text.
    pub parameter_schema: Option<String>,
    /// Metadata keys that the extension owns.
    pub metadata_keys: Vec<String>,
    /// URIs of extensions that must be active too.
    pub depends_on: Vec<ExtensionUri>,
    /// Outgoing events that the extension subscribes to.
    pub events: Events,
    /// True if the extension gets outgoing events as JSON.
    pub payload: bool,
}
