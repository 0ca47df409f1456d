//! A config as an HTTP request: URL and headers.

use annex_egress::Screen;
use annex_protocol::{AuthenticationInfo, Secret, TaskPushNotificationConfig};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::invalid::InvalidConfig;

/// Maximum size of a token, and of an authentication, in bytes.
const MAX_SECRET: usize = 8 * 1024;
// The header that the official SDKs send. Specification 1.0.1 describes the token and names no header.
const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");

pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
}

impl Target {
    pub(crate) fn of(config: &TaskPushNotificationConfig, screen: &Screen) -> Result<Self, InvalidConfig> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &config.token {
            headers.insert(TOKEN, sensitive(token.expose()).ok_or(InvalidConfig::Token { limit: MAX_SECRET })?);
        }
        if let Some(authentication) = &config.authentication {
            let value = authorization(authentication).ok_or(InvalidConfig::Authentication { limit: MAX_SECRET })?;
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self { url: screen.parse(&config.url)?, headers })
    }

    /// Scheme, host and port. The rest of the URL may contain a credential and must not be logged.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

fn authorization(authentication: &AuthenticationInfo) -> Option<HeaderValue> {
    let scheme = &authentication.scheme;
    if scheme.is_empty() || !scheme.bytes().all(is_token_byte) {
        return None;
    }
    match authentication.credentials.as_ref().map(Secret::expose) {
        Some(credentials) if !credentials.is_empty() => sensitive(&format!("{scheme} {credentials}")),
        Some(_) | None => sensitive(scheme),
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    // A line break would let the config's author add header fields.
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !printable || text.len() > MAX_SECRET {
        return None;
    }
    let mut value = HeaderValue::from_str(text).ok()?;
    // Debug output hides a sensitive value.
    value.set_sensitive(true);
    Some(value)
}

/// True for a token character of RFC 9110 section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
