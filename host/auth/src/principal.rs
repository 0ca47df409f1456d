//! The authenticated caller.

use annex_protocol::{Json, JsonObject};

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    /// The name of the principal: for an API key the configured name, for a token `<issuer>#<claim>`, and for a
    /// certificate `mtls#<name>`. The name is unique across all configured schemes, because names of API keys and issuers
    /// contain no `#`, and no issuer is named `mtls` where certificates name callers.
    pub id: String,
    /// The name of the scheme in the Agent Card: [`crate::API_KEY_SCHEME`], [`crate::JWT_SCHEME`],
    /// [`crate::INTROSPECTION_SCHEME`] or [`crate::MTLS_SCHEME`].
    pub scheme: &'static str,
    /// The words of a token's `scope` claim (RFC 8693 section 4.2); empty for an API key and a certificate.
    pub scopes: Vec<String>,
    /// The claims of a token; empty for an API key and a certificate.
    pub claims: JsonObject,
}

/// Tells whether `name` can be a principal's name: 1 to 255 bytes without control characters. A control character could
/// break a line of a log.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The principal of a token with these claims. `None` if the claim that names the principal is missing or no name, or if the
/// claim `scope` has another form than RFC 8693 gives it.
pub(crate) fn of_claims(
    (issuer, principal_claim): (&str, &str),
    scheme: &'static str,
    claims: &JsonObject,
) -> Option<Principal> {
    let name = text(claims, principal_claim).filter(|name| is_name(name))?;
    let scopes = match claims.get("scope") {
        None => Vec::new(),
        // RFC 8693, section 4.2: scopes are one text. A token with another form is refused, not taken for one without
        // scopes.
        Some(scope) => scope.to::<String>().ok()?.split_ascii_whitespace().map(str::to_owned).collect(),
    };
    // No API key has this id, because names of their principals have no `#`.
    let id = format!("{issuer}#{name}");
    Some(Principal { id, scheme, scopes, claims: claims.clone() })
}

/// The value of a claim that is a text.
pub(crate) fn text(claims: &JsonObject, name: &str) -> Option<String> {
    claims.get(name).and_then(|claim: &Json| claim.to().ok())
}
