//! The authenticated caller.

use annex_protocol::JsonObject;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    /// The name of the principal: for an API key the configured name, and for a token `<issuer>#<claim>`. The name is
    /// unique across all configured schemes, because names of API keys and issuers contain no `#`.
    pub id: String,
    /// The name of the scheme in the Agent Card: [`crate::API_KEY_SCHEME`] or [`crate::JWT_SCHEME`].
    pub scheme: &'static str,
    /// The words of a token's `scope` claim (RFC 8693 section 4.2); empty for an API key.
    pub scopes: Vec<String>,
    /// The claims of a token; empty for an API key.
    pub claims: JsonObject,
}

/// Tells whether `name` can be a principal's name: 1 to 255 bytes without control characters. A control character could
/// break a line of a log.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.chars().any(char::is_control)
}
