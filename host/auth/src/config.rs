//! The operator's settings for authentication: the tables below `[auth]`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::Algorithm;

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

fn all_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
}

fn subject() -> String {
    "sub".to_owned()
}

fn default_leeway() -> u64 {
    30
}
