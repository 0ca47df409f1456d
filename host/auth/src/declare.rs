//! The table `[auth.declare]`: the ways to get a token, which the Agent Card declares.
//!
//! This server never calls the declared URLs. They are for clients, so they are checked for form only.

use annex_protocol::{
    AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, SecurityScheme,
};
use indexmap::IndexMap;
use reqwest::Url;
use serde::Deserialize;

use crate::AuthConfigError;
use crate::url::{UNSAFE, is_safe};

const MAX_URL_BYTES: usize = 2048;
const MAX_SCOPES: usize = 100;
const MAX_SCOPE_BYTES: usize = 256;
const MAX_MEANING_BYTES: usize = 1024;

/// The table `[auth.declare]`: how a client gets a token that this server accepts. Each key adds a security scheme to the
/// Agent Card, except `oauth2_metadata_url`, which is a field of the schemes of OAuth 2.0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeclareConfig {
    /// The URL of the discovery document of OpenID Connect.
    pub openid_connect_url: Option<String>,
    /// The URL of the authorization server's metadata (RFC 8414).
    pub oauth2_metadata_url: Option<String>,
    /// The authorization code flow of OAuth 2.0.
    pub authorization_code: Option<AuthorizationCodeConfig>,
    /// The client credentials flow of OAuth 2.0.
    pub client_credentials: Option<ClientCredentialsConfig>,
    /// The device code flow of OAuth 2.0, which cards of A2A 0.3 cannot have.
    pub device_code: Option<DeviceCodeConfig>,
}

/// The table `[auth.declare.authorization_code]` (RFC 6749, section 4.1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationCodeConfig {
    /// The page where the user grants access.
    pub authorization_url: String,
    /// The URL of the token endpoint.
    pub token_url: String,
    /// The URL for refreshing tokens. Default: the token endpoint.
    pub refresh_url: Option<String>,
    /// The meaning of each scope.
    #[serde(default)]
    pub scopes: IndexMap<String, String>,
    /// True if the authorization server requires PKCE (RFC 7636).
    #[serde(default)]
    pub pkce_required: bool,
}

/// The table `[auth.declare.client_credentials]` (RFC 6749, section 4.4).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCredentialsConfig {
    /// The URL of the token endpoint.
    pub token_url: String,
    /// The URL for refreshing tokens. Default: the token endpoint.
    pub refresh_url: Option<String>,
    /// The meaning of each scope.
    #[serde(default)]
    pub scopes: IndexMap<String, String>,
}

/// The table `[auth.declare.device_code]` (RFC 8628).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCodeConfig {
    /// The URL where the device requests a code.
    pub device_authorization_url: String,
    /// The URL of the token endpoint.
    pub token_url: String,
    /// The URL for refreshing tokens. Default: the token endpoint.
    pub refresh_url: Option<String>,
    /// The meaning of each scope.
    #[serde(default)]
    pub scopes: IndexMap<String, String>,
}

/// A wrong key below `[auth.declare]`, and the fault in its value.
pub type WrongDeclaration = (String, &'static str);

impl DeclareConfig {
    /// All mistakes in the table.
    #[must_use]
    pub fn mistakes(&self) -> Vec<WrongDeclaration> {
        let (urls, scopes) = (self.urls(), self.scopes());
        let wrong_urls = urls.into_iter().filter_map(|(key, url)| Some((key, wrong_url(url)?)));
        let wrong_scopes = scopes.into_iter().filter_map(|(flow, scopes)| {
            let problem = wrong_scopes(scopes)?;
            Some((format!("{flow}.scopes"), problem))
        });
        let mut wrong: Vec<WrongDeclaration> = wrong_urls.chain(wrong_scopes).collect();
        if self.oauth2_metadata_url.is_some() && self.scopes().is_empty() {
            let problem = "is a field of a flow; add authorization_code, client_credentials or device_code";
            wrong.push(("oauth2_metadata_url".to_owned(), problem));
        }
        wrong
    }

    /// Checks the table.
    pub(crate) fn check(&self) -> Result<(), AuthConfigError> {
        let first = self.mistakes().into_iter().next();
        first.map_or(Ok(()), |(key, problem)| Err(AuthConfigError::Declare { key, problem }))
    }

    /// The security schemes by their names on the card.
    pub(crate) fn schemes(&self) -> Vec<(&'static str, SecurityScheme)> {
        let openid = self.openid_connect_url.clone().map(|open_id_connect_url| {
            let scheme = OpenIdConnectSecurityScheme { description: None, open_id_connect_url };
            ("openIdConnect", SecurityScheme::OpenIdConnect(scheme))
        });
        let code = self.authorization_code.clone().map(|flow| {
            let AuthorizationCodeConfig { authorization_url, token_url, refresh_url, scopes, pkce_required } = flow;
            let flow = AuthorizationCodeOAuthFlow { authorization_url, token_url, refresh_url, scopes, pkce_required };
            ("oauth2AuthorizationCode", self.oauth2(OAuthFlows::AuthorizationCode(flow)))
        });
        let client = self.client_credentials.clone().map(|flow| {
            let ClientCredentialsConfig { token_url, refresh_url, scopes } = flow;
            let flow = ClientCredentialsOAuthFlow { token_url, refresh_url, scopes };
            ("oauth2ClientCredentials", self.oauth2(OAuthFlows::ClientCredentials(flow)))
        });
        let device = self.device_code.clone().map(|flow| {
            let DeviceCodeConfig { device_authorization_url, token_url, refresh_url, scopes } = flow;
            let flow = DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes };
            ("oauth2DeviceCode", self.oauth2(OAuthFlows::DeviceCode(flow)))
        });
        openid.into_iter().chain(code).chain(client).chain(device).collect()
    }

    fn oauth2(&self, flow: OAuthFlows) -> SecurityScheme {
        let oauth2_metadata_url = self.oauth2_metadata_url.clone();
        SecurityScheme::OAuth2(OAuth2SecurityScheme { description: None, flows: Some(flow), oauth2_metadata_url })
    }

    /// All URLs by their keys.
    fn urls(&self) -> Vec<(String, &str)> {
        let own = [
            ("openid_connect_url", self.openid_connect_url.as_deref()),
            ("oauth2_metadata_url", self.oauth2_metadata_url.as_deref()),
        ];
        let code = self.authorization_code.iter().flat_map(|flow| {
            let page = ("authorization_code.authorization_url", Some(flow.authorization_url.as_str()));
            let token = ("authorization_code.token_url", Some(flow.token_url.as_str()));
            [page, token, ("authorization_code.refresh_url", flow.refresh_url.as_deref())]
        });
        let client = self.client_credentials.iter().flat_map(|flow| {
            let token = ("client_credentials.token_url", Some(flow.token_url.as_str()));
            [token, ("client_credentials.refresh_url", flow.refresh_url.as_deref())]
        });
        let device = self.device_code.iter().flat_map(|flow| {
            let code = ("device_code.device_authorization_url", Some(flow.device_authorization_url.as_str()));
            let token = ("device_code.token_url", Some(flow.token_url.as_str()));
            [code, token, ("device_code.refresh_url", flow.refresh_url.as_deref())]
        });
        let all = own.into_iter().chain(code).chain(client).chain(device);
        all.filter_map(|(key, url)| Some((key.to_owned(), url?))).collect()
    }

    /// The scopes of each flow.
    fn scopes(&self) -> Vec<(&'static str, &IndexMap<String, String>)> {
        let code = self.authorization_code.as_ref().map(|flow| ("authorization_code", &flow.scopes));
        let client = self.client_credentials.as_ref().map(|flow| ("client_credentials", &flow.scopes));
        let device = self.device_code.as_ref().map(|flow| ("device_code", &flow.scopes));
        code.into_iter().chain(client).chain(device).collect()
    }
}

/// The fault in a URL for clients.
fn wrong_url(text: &str) -> Option<&'static str> {
    if text.len() > MAX_URL_BYTES {
        return Some("is longer than 2048 bytes");
    }
    let Ok(url) = Url::parse(text) else { return Some("is not a URL") };
    if !is_safe(&url) {
        return Some(UNSAFE);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("has a user or a password, which everybody could read on the card; leave it out");
    }
    // RFC 6749, sections 3.1 and 3.2.
    url.fragment().is_some().then_some("has a fragment (`#`), which such a URL must not have")
}

/// The fault in the scopes of a flow.
fn wrong_scopes(scopes: &IndexMap<String, String>) -> Option<&'static str> {
    if scopes.len() > MAX_SCOPES {
        return Some("has more than 100 scopes");
    }
    // RFC 6749, section 3.3: printable ASCII without the space, `"` and `\`.
    let is_scope_byte = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if scopes.keys().any(|name| name.is_empty() || name.len() > MAX_SCOPE_BYTES || !name.bytes().all(is_scope_byte)) {
        return Some("has a name that is no scope: 1 to 256 printable ASCII characters without spaces, `\"` and `\\`");
    }
    let is_long = |meaning: &String| meaning.len() > MAX_MEANING_BYTES || meaning.chars().any(char::is_control);
    scopes.values().any(is_long).then_some("has a meaning of more than 1024 bytes, or with control characters")
}
