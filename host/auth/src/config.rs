//! The operator's settings for authentication: the tables below `[auth]`.

use std::path::PathBuf;

use annex_protocol::Secret;
use serde::Deserialize;

use crate::{Algorithm, AuthConfigError, ClientCertificateConfig, DeclareConfig, MTLS_SCHEME, oauth_client, principal};

/// The table `[auth]`. A caller needs to satisfy only one of its schemes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// The API keys, one table `[[auth.api_key]]` each.
    pub api_key: Vec<ApiKeyConfig>,
    /// The request header that carries the API key.
    pub api_key_header: ApiKeyHeaderConfig,
    /// JSON Web Tokens of one issuer.
    pub jwt: Option<JwtConfig>,
    /// Tokens about which this server asks the authorization server.
    pub introspection: Option<IntrospectionConfig>,
    /// Client certificates. The TLS of the listener verifies them.
    pub client_certificate: Option<ClientCertificateConfig>,
    /// The ways to get a token, which the Agent Card declares.
    pub declare: Option<DeclareConfig>,
}

impl AuthConfig {
    /// True if callers can authenticate with tokens.
    #[must_use]
    pub fn accepts_tokens(&self) -> bool {
        self.jwt.is_some() || self.introspection.is_some()
    }

    /// Checks that one id of a principal stands for one caller. The id is the issuer and the value of a claim. With two
    /// claims of one issuer, the id of one caller could be that of another. The same holds for an issuer with the name
    /// that begins the ids of certificates.
    pub(crate) fn check_issuers(&self) -> Result<(), AuthConfigError> {
        if self.client_certificate.is_some() {
            let problem = "must not be \"mtls\", which begins the names of callers with a certificate";
            if self.jwt.as_ref().is_some_and(|jwt| jwt.issuer == MTLS_SCHEME) {
                return Err(AuthConfigError::Jwt { field: "issuer", problem });
            }
            if self.introspection.as_ref().is_some_and(|introspection| introspection.issuer == MTLS_SCHEME) {
                return Err(AuthConfigError::Introspection { field: "issuer", problem: problem.to_owned() });
            }
        }
        let (Some(jwt), Some(introspection)) = (&self.jwt, &self.introspection) else { return Ok(()) };
        if jwt.issuer != introspection.issuer || jwt.principal_claim == introspection.principal_claim {
            return Ok(());
        }
        let problem = format!(
            "must be {:?}, the claim in auth.jwt.principal_claim, because both tables have the same issuer",
            jwt.principal_claim
        );
        Err(AuthConfigError::Introspection { field: "principal_claim", problem })
    }
}

/// One API key. The key itself is never part of the configuration. Exactly one of `key_env`, `key_file` and
/// `key_sha256` is set. A principal may have several keys, so that keys can be rotated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The name of the caller with this key: 1 to 255 bytes, without `#` and control characters.
    pub principal: String,
    /// The environment variable that holds the key, of 16 to 1024 bytes.
    pub key_env: Option<String>,
    /// The file with the key, of 16 to 1024 bytes. Line breaks at its end are ignored. The file is read once.
    pub key_file: Option<PathBuf>,
    /// The SHA-256 digest of the key, 64 hexadecimal digits. The key must be random, because a guessable key can be
    /// found by its digest.
    pub key_sha256: Option<String>,
}

/// The table `[auth.api_key_header]`: the request header that carries the API key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeyHeaderConfig {
    /// The name of the header, `x-api-key` by default. `authorization` is reserved for tokens.
    pub name: String,
}

impl Default for ApiKeyHeaderConfig {
    fn default() -> Self {
        Self { name: "x-api-key".to_owned() }
    }
}

/// JSON Web Tokens (RFC 7519) in the `Authorization` header (RFC 6750).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// The required value of the claim `iss`, compared byte for byte. It must not contain `#`.
    pub issuer: String,
    /// The accepted audiences. A token's claim `aud` must contain at least one.
    pub audience: Vec<String>,
    /// The URL where the issuer publishes its keys (RFC 7517). HTTPS, or plain HTTP on this machine. Either this or
    /// `jwks_file` is set, never both.
    pub jwks_url: Option<String>,
    /// A file with the issuer's keys, read once. Either this or `jwks_url` is set, never both.
    pub jwks_file: Option<PathBuf>,
    /// The accepted algorithms of a token's signature: all of [`Algorithm`] by default.
    #[serde(default = "all_algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// The claim that names the caller, `sub` by default. Its value must be a string of 1 to 255 bytes.
    #[serde(default = "subject")]
    pub principal_claim: String,
    /// The largest accepted difference between the issuer's clock and this machine's, in seconds: 30 by default, 300 at
    /// most.
    #[serde(default = "default_leeway")]
    pub leeway_seconds: u64,
}

/// The table `[auth.introspection]`: opaque tokens, about which this server asks the authorization server (RFC 7662). If
/// there are also JSON Web Tokens, a token in their form is verified as such, and this table is for all others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionConfig {
    /// The URL of the introspection endpoint. HTTPS, or plain HTTP on this machine.
    pub url: String,
    /// The name of the authorization server in the ids of principals. If an answer has the claim `iss`, it must have this
    /// value. It must not contain `#`.
    pub issuer: String,
    /// The accepted audiences. The claim `aud` of an answer must contain at least one.
    pub audience: Vec<String>,
    /// The id of this server at the authorization server.
    pub client_id: String,
    /// The environment variable with the secret of this server. Either this or `client_secret_file` is set.
    pub client_secret_env: Option<String>,
    /// The file with the secret of this server, read once. Line breaks at its end are ignored. Either this or
    /// `client_secret_env` is set.
    pub client_secret_file: Option<PathBuf>,
    /// The claim that names the caller, `sub` by default. Its value must be a string of 1 to 255 bytes.
    #[serde(default = "subject")]
    pub principal_claim: String,
    /// Hosts, addresses and ranges that may be called although they are not public. An endpoint on this machine needs no
    /// entry.
    #[serde(default)]
    pub allow_private: Vec<String>,
}

impl IntrospectionConfig {
    /// Checks the fields that need no file, no environment and no network.
    pub(crate) fn check(&self) -> Result<(), AuthConfigError> {
        let refuse = |field, problem: &str| Err(AuthConfigError::Introspection { field, problem: problem.to_owned() });
        if !principal::is_name(&self.issuer) || self.issuer.contains('#') {
            return refuse("issuer", "must be 1 to 255 bytes without `#` and control characters");
        }
        if self.audience.is_empty() || self.audience.iter().any(String::is_empty) {
            return refuse("audience", "must name at least one audience, and no empty one");
        }
        if !principal::is_name(&self.client_id) {
            return refuse("client_id", "must be 1 to 255 bytes without control characters");
        }
        if self.principal_claim.is_empty() {
            return refuse("principal_claim", "must not be empty");
        }
        Ok(())
    }

    /// Reads the secret of this server.
    pub(crate) fn secret(&self) -> Result<Secret, AuthConfigError> {
        Ok(oauth_client::secret(self.client_secret_env.as_deref(), self.client_secret_file.as_deref())?)
    }
}

fn all_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
}

fn subject() -> String {
    "sub".to_owned()
}

fn default_leeway() -> u64 {
    30
}
