//! The caller, once it is authenticated.

use annex_protocol::JsonObject;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    /// Unique over all configured schemes: the configured name for an API key, `<issuer>#<claim>` for a token. Names
    /// of API keys and issuers hold no `#`, so that one cannot pass for the other.
    pub id: String,
    /// The scheme that was used, by its name in the Agent Card: [`crate::API_KEY_SCHEME`] or [`crate::JWT_SCHEME`].
    pub scheme: &'static str,
    /// The words of a token's `scope` claim (RFC 8693 section 4.2); empty for an API key.
    pub scopes: Vec<String>,
    /// The claims of a token; empty for an API key.
    pub claims: JsonObject,
}

/// Tells whether `name` is fit to name somebody: 1 to 255 bytes, nothing that breaks a line of a log.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.chars().any(char::is_control)
}
