//! The settings with which this server gets access tokens for another server.

use std::path::{Path, PathBuf};

use annex_protocol::Secret;
use reqwest::Url;
use serde::Deserialize;

use crate::oauth_client::{self, ClientFault};
use crate::principal;

/// The maximum length of a scope, an audience and a resource, in bytes.
const MAX_VALUE_BYTES: usize = 1024;

/// The table `oauth`: where this server gets access tokens for another server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuthConfig {
    /// The URL of the token endpoint. HTTPS, or plain HTTP on this machine.
    pub token_url: String,
    /// The way to a token. Default: client credentials.
    #[serde(default)]
    pub grant: Grant,
    /// The id of this server at the authorization server.
    pub client_id: String,
    /// The environment variable with the secret of this server. Either this or `client_secret_file` is set.
    pub client_secret_env: Option<String>,
    /// The file with the secret of this server, read once. Line breaks at its end are ignored. Either this or
    /// `client_secret_env` is set.
    pub client_secret_file: Option<PathBuf>,
    /// The place of the client's id and secret in a request. Default: the header.
    #[serde(default)]
    pub client_authentication: ClientAuthentication,
    /// The requested scopes, separated by spaces (RFC 6749, section 3.3).
    pub scope: Option<String>,
    /// The name of the service for which a token is requested (RFC 8693, section 2.1).
    pub audience: Option<String>,
    /// The URI of the service for which a token is requested (RFC 8707).
    pub resource: Option<String>,
    /// The token of a turn without a request of its caller. Allowed only with token exchange.
    pub fallback: Option<Fallback>,
    /// Hosts, addresses and ranges that may be called although they are not public. An endpoint on this machine needs no
    /// entry.
    #[serde(default)]
    pub allow_private: Vec<String>,
}

/// The way to an access token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// The token is that of this server (RFC 6749, section 4.4).
    #[default]
    ClientCredentials,
    /// The token is given in exchange for the token of the caller (RFC 8693).
    TokenExchange,
}

/// The place of the client's id and secret in a request (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// The header `Authorization`.
    #[default]
    Basic,
    /// The body.
    Post,
}

/// The token of a turn without a request of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The token of this server.
    ClientCredentials,
}

/// A setting that cannot work.
#[derive(Debug, thiserror::Error)]
#[error("{key} {reason}")]
pub struct OAuthConfigError {
    /// The key, which begins with `oauth.`.
    pub key: &'static str,
    /// The fault of the value, which contains no secret.
    pub reason: String,
}

impl OAuthConfig {
    /// Checks the fields that need no file, no environment and no network.
    ///
    /// # Errors
    /// The first field that cannot work.
    pub fn check(&self) -> Result<(), OAuthConfigError> {
        let refuse = |key, reason: &str| Err(OAuthConfigError { key, reason: reason.to_owned() });
        oauth_client::safe("token_url", &self.token_url)?;
        if !principal::is_name(&self.client_id) {
            return refuse("oauth.client_id", "must be 1 to 255 bytes without control characters");
        }
        if self.client_secret_env.is_some() == self.client_secret_file.is_some() {
            return refuse("oauth.client_secret_env", "or client_secret_file is required, and not both");
        }
        if self.scope.as_deref().is_some_and(|scope| !is_scope(scope)) {
            return refuse("oauth.scope", "must be words of printable ASCII without quotes, with one space between");
        }
        if self.audience.as_deref().is_some_and(|audience| !is_value(audience)) {
            return refuse("oauth.audience", "must be 1 to 1024 bytes without control characters");
        }
        let is_resource = |resource: &str| Url::parse(resource).is_ok_and(|url| url.fragment().is_none());
        if self.resource.as_deref().is_some_and(|resource| !is_value(resource) || !is_resource(resource)) {
            return refuse("oauth.resource", "must be an absolute URI without a fragment");
        }
        if self.fallback.is_some() && self.grant != Grant::TokenExchange {
            return refuse("oauth.fallback", "is allowed only with grant = \"token_exchange\"");
        }
        Ok(())
    }

    /// The settings with a file whose relative path starts at `folder`.
    #[must_use]
    pub fn located(self, folder: &Path) -> Self {
        Self { client_secret_file: self.client_secret_file.map(|file| folder.join(file)), ..self }
    }

    /// Reads the secret of this server.
    pub(crate) fn secret(&self) -> Result<Secret, OAuthConfigError> {
        Ok(oauth_client::secret(self.client_secret_env.as_deref(), self.client_secret_file.as_deref())?)
    }
}

impl From<ClientFault> for OAuthConfigError {
    fn from(fault: ClientFault) -> Self {
        match fault {
            ClientFault::Setting { field, problem } => Self { key: key_of(field), reason: problem },
            ClientFault::File { path, source } => Self {
                key: "oauth.client_secret_file",
                reason: format!("names {}, which cannot be read: {source}", path.display()),
            },
        }
    }
}

/// The key of a field that other clients of authorization servers have too.
fn key_of(field: &'static str) -> &'static str {
    match field {
        "token_url" => "oauth.token_url",
        "client_id" => "oauth.client_id",
        "client_secret_env" => "oauth.client_secret_env",
        "client_secret_file" => "oauth.client_secret_file",
        "allow_private" => "oauth.allow_private",
        _ => "oauth",
    }
}

fn is_value(text: &str) -> bool {
    (1..=MAX_VALUE_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// True for words of a scope, which have neither quotes nor backslashes (RFC 6749, section 3.3).
fn is_scope(scope: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
    };
    scope.len() <= MAX_VALUE_BYTES && scope.split(' ').all(is_word)
}
