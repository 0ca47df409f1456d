//! The operator's parameters.

use annex_sdk::secrets;
use serde::Deserialize;

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The least length of the secret in `state_key`.
const MIN_KEY: usize = 32;

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The URL at which a person grants access.
    pub authorization_endpoint: String,
    /// The URL that gives a token for a code.
    pub token_endpoint: String,
    /// The name of the agent at the authorization server.
    pub client_id: String,
    client_secret: Option<String>,
    /// The access that the agent asks for.
    pub scope: Option<String>,
    /// The URL of the server that takes the token.
    pub resource: Option<String>,
    /// The URLs of clients to which a code may go.
    pub redirect_uris: Vec<String>,
    #[serde(default = "state_key")]
    state_key: String,
}

fn state_key() -> String {
    "STATE_KEY".to_owned()
}

impl Parameters {
    /// Checks the rules that the schema cannot express.
    ///
    /// # Errors
    /// A URL cannot be used, or a secret is missing or too short.
    pub fn check(&self) -> Result<(), String> {
        let endpoints =
            [("authorization_endpoint", &self.authorization_endpoint), ("token_endpoint", &self.token_endpoint)];
        let redirects = self.redirect_uris.iter().map(|uri| ("redirect_uris", uri));
        for (name, url) in endpoints.into_iter().chain(redirects) {
            let is_web = url.starts_with("https://") || url.starts_with("http://");
            if !is_web || !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains('#') {
                return Err(format!("`{name}`: {url:?} is no URL that begins with https:// and has no fragment"));
            }
        }
        if let Some(url) = self.redirect_uris.iter().find(|url| url.contains('?')) {
            return Err(format!("`redirect_uris`: {url:?} has a query; the authorization server adds one"));
        }
        if self.key()?.len() < MIN_KEY {
            return Err(format!("the secret {:?} has less than {MIN_KEY} characters", self.state_key));
        }
        self.password().map(drop)
    }

    /// The key from which the values of an authorization are derived.
    ///
    /// # Errors
    /// The operator has not granted the secret.
    pub fn key(&self) -> Result<String, String> {
        secret(&self.state_key)
    }

    /// The agent's password at the authorization server. `None` for a public client.
    ///
    /// # Errors
    /// The operator has not granted the secret.
    pub fn password(&self) -> Result<Option<String>, String> {
        self.client_secret.as_deref().map(secret).transpose()
    }
}

fn secret(name: &str) -> Result<String, String> {
    secrets::get(name)?.ok_or_else(|| format!("there is no secret {name:?}; add it to the grant `secrets`"))
}
