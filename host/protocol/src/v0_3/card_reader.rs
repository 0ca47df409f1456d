//! A card of 0.3, read as one of 1.0 (A2A 0.3 section 5.5).

use serde::Deserialize;

use super::names::VERSION;
use crate::{AgentCard, AgentInterface, Json, JsonObject};

/// The fields of a 0.3 card that name its interfaces.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interfaces {
    url: String,
    preferred_transport: Option<String>,
    /// The further interfaces. `None` for a missing field and for `null`, which some agents write for an empty list.
    additional_interfaces: Option<Vec<Json>>,
}

#[derive(Deserialize)]
struct Interface {
    transport: String,
    url: String,
}

/// Reads a card of 1.0, or a card with only the fields of 0.3. The security schemes of 0.3 have another form and are
/// skipped.
///
/// ```
/// use annex_protocol::v0_3;
///
/// let card = v0_3::read_card(r#"{"name":"Echo","url":"http://a.example/","protocolVersion":"0.3.0"}"#)?;
/// let main = card.supported_interfaces.first().map(|main| (main.protocol_binding.as_str(), main.url.as_str()));
/// assert_eq!(main, Some(("JSONRPC", "http://a.example/")));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// When the text is neither a card of 1.0 nor one of 0.3.
pub fn read_card(text: &str) -> Result<AgentCard, serde_json::Error> {
    let mut object = JsonObject::parse(text)?;
    // A merged card has the fields of both versions; those of 1.0 contain more.
    let is_current = ["supportedInterfaces", "supported_interfaces"].iter().any(|name| object.contains_key(name));
    if is_current || !object.contains_key("url") {
        return serde_json::from_str(text);
    }
    for name in ["securitySchemes", "security", "signatures"] {
        object.remove(name);
    }
    let mut card: AgentCard = serde_json::from_str(&object.to_json_string())?;
    let Interfaces { url, preferred_transport, additional_interfaces } = serde_json::from_str(text)?;
    // JSON-RPC is the default of `preferredTransport` in 0.3.
    let transport = preferred_transport.unwrap_or_else(|| "JSONRPC".to_owned());
    // An unreadable interface is skipped, and the others are still used.
    let additional = additional_interfaces.into_iter().flatten().filter_map(|interface| interface.to().ok());
    for Interface { transport, url } in [Interface { transport, url }].into_iter().chain(additional) {
        let interface =
            AgentInterface { url, protocol_binding: transport, protocol_version: VERSION.to_owned(), tenant: None };
        // 0.3 asks servers to list the main interface among the additional ones once more.
        if !card.supported_interfaces.contains(&interface) {
            card.supported_interfaces.push(interface);
        }
    }
    Ok(card)
}
