//! The paths on the Agent Card.

/// The path of the JSON-RPC binding.
pub(crate) const JSONRPC_PATH: &str = "/a2a/jsonrpc";
/// The base path of the HTTP+JSON binding.
pub(crate) const REST_PATH: &str = "/a2a/rest";
/// The well-known path of the card (A2A 1.0 section 8.2).
pub(crate) const CARD_PATH: &str = "/.well-known/agent-card.json";
/// The well-known path of the card in A2A 0.2 (section 5.3). Clients of 0.2 can read the card of 0.3.
pub(crate) const OLD_CARD_PATH: &str = "/.well-known/agent.json";
