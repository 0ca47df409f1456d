//! The header fields with which callers authenticate.

use annex_auth::{ApiKeyHeaderConfig, AuthConfig};

/// The fields of credentials in any config. The config names the field of API keys.
const CREDENTIALS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Further fields that carry tokens: of servers, and of proxies that authenticate callers.
const TOKENS: [&str; 9] = [
    "set-cookie",
    "cf-access-jwt-assertion",
    "dpop",
    "x-amz-security-token",
    "x-amzn-oidc-accesstoken",
    "x-amzn-oidc-data",
    "x-auth-request-access-token",
    "x-forwarded-access-token",
    "x-goog-iap-jwt-assertion",
];

/// True if callers authenticate with this header field, in any case of its letters.
pub(super) fn is_credential(name: &str, auth: Option<&AuthConfig>) -> bool {
    let ApiKeyHeaderConfig { name: key } = auth.map(|auth| auth.api_key_header.clone()).unwrap_or_default();
    CREDENTIALS.into_iter().chain([key.as_str()]).any(|one| one.eq_ignore_ascii_case(name))
}

/// True if no config may show this header field to an extension, in any case of its letters.
pub(super) fn is_never_shown(name: &str) -> bool {
    // The default field of API keys is refused even if the config has another one: clients of other servers send it.
    TOKENS.iter().any(|one| one.eq_ignore_ascii_case(name)) || is_credential(name, None)
}

/// The reason why a grant cannot name this header field.
pub(super) fn refusal(name: &str) -> String {
    format!("{name:?} is a field for credentials, which no extension sees; leave it out")
}
