//! The operator's settings: the tables below `[auth]`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::Algorithm;

/// The table `[auth]`. Any one of the schemes in it lets a caller in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// The API keys, one table `[[auth.api_key]]` each.
    pub api_key: Vec<ApiKeyConfig>,
    /// The header that API keys are looked for in.
    pub api_key_header: ApiKeyHeaderConfig,
    /// JSON Web Tokens of one issuer.
    pub jwt: Option<JwtConfig>,
}

/// One API key. The key itself is never part of the configuration: exactly one of `key_env`, `key_file` and
/// `key_sha256` says where it is. One principal may have several keys, so that they can be rotated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The name of the caller with this key: 1 to 255 bytes, without `#` and control characters.
    pub principal: String,
    /// The environment variable that holds the key, of 16 to 1024 bytes.
    pub key_env: Option<String>,
    /// The file that holds the key, of 16 to 1024 bytes; line breaks at its end do not count. Read once.
    pub key_file: Option<PathBuf>,
    /// The SHA-256 digest of the key, 64 hexadecimal digits. The key must be random: a digest does not hide a key that
    /// can be guessed.
    pub key_sha256: Option<String>,
}

/// The header that API keys are looked for in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeyHeaderConfig {
    /// The name of the header, `x-api-key` by default; `authorization` is taken by tokens.
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
    /// The value that the claim `iss` must have, byte for byte; without `#`.
    pub issuer: String,
    /// A token must name at least one of these in its claim `aud`.
    pub audience: Vec<String>,
    /// The URL at which the issuer publishes its keys (RFC 7517). HTTPS, or plain HTTP on this machine. This or
    /// `jwks_file`.
    pub jwks_url: Option<String>,
    /// A file with the issuer's keys, read once. This or `jwks_url`.
    pub jwks_file: Option<PathBuf>,
    /// The algorithms that a token may be signed with: all of [`Algorithm`] by default.
    #[serde(default = "all_algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// The claim that names the caller, `sub` by default. Its value must be a string of 1 to 255 bytes.
    #[serde(default = "subject")]
    pub principal_claim: String,
    /// The most seconds that the clocks of the issuer and of this machine may differ by: 30 by default, 300 at most.
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
