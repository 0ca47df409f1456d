//! The caller, once it is authenticated.

use annex_protocol::JsonObject;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    /// Unique across all configured schemes: the configured name for an API key, `<issuer>#<claim>` for a token. Names
    /// of API keys and issuers contain no `#`, so that the two cannot collide.
    pub id: String,
    /// The scheme, by its name in the Agent Card: [`crate::API_KEY_SCHEME`] or [`crate::JWT_SCHEME`].
    pub scheme: &'static str,
    /// The words of a token's `scope` claim (RFC 8693 section 4.2); empty for an API key.
    pub scopes: Vec<String>,
    /// The claims of a token; empty for an API key.
    pub claims: JsonObject,
}

/// Tells whether `name` can be a principal's name: 1 to 255 bytes without control characters, which could break a line
/// of a log.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.chars().any(char::is_control)
}
