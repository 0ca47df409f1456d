//! A component's description of itself.

use annex_protocol::ExtensionUri;

use crate::contract::Events;

/// A component's description of itself, checked.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The extension's URI, which is its version too.
    pub uri: ExtensionUri,
    /// A short name.
    pub name: String,
    /// The component's own version.
    pub version: String,
    /// One sentence for the card.
    pub description: String,
    /// JSON Schema of its parameters, as text.
    pub parameter_schema: Option<String>,
    /// The metadata keys that it may read and write.
    pub metadata_keys: Vec<String>,
    /// URIs that must be active with it.
    pub depends_on: Vec<ExtensionUri>,
    /// The outgoing events that it wants to see.
    pub events: Events,
    /// True when it wants those events as JSON.
    pub payload: bool,
}
