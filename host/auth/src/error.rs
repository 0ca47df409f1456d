//! The errors of authentication. An operator gets errors of the configuration at start. A caller gets an error when its request
//! cannot be authenticated.

use std::env::VarError;
use std::path::PathBuf;

use http::HeaderValue;

use crate::Algorithm;

/// The reason why a request has no principal.
///
/// The sender of the credential gets this error, so its text does not reveal the fault in the credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request has no credentials: HTTP 401, gRPC UNAUTHENTICATED.
    #[error("credentials are required")]
    Missing {
        /// The value of `WWW-Authenticate`.
        challenge: HeaderValue,
    },
    /// The credentials are invalid: HTTP 401, gRPC UNAUTHENTICATED.
    #[error("the credentials are not valid")]
    Invalid {
        /// The value of `WWW-Authenticate`.
        challenge: HeaderValue,
    },
    /// The issuer's keys cannot be fetched now, or the authorization server gives no usable answer: HTTP 503, gRPC UNAVAILABLE.
    #[error("the identity provider is unavailable")]
    Unavailable,
}

impl AuthError {
    /// The value of the header `WWW-Authenticate` for an answer with status 401 (RFC 9110 section 11.6.1, RFC 6750
    /// section 3). `None` for [`AuthError::Unavailable`].
    pub fn www_authenticate(&self) -> Option<&HeaderValue> {
        match self {
            Self::Missing { challenge } | Self::Invalid { challenge } => Some(challenge),
            Self::Unavailable => None,
        }
    }
}

/// The reason why a configuration is refused at start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthConfigError {
    /// Neither API keys nor tokens nor certificates are configured, so that no caller could be accepted.
    #[error(
        "accepts no caller; add [[auth.api_key]], [auth.jwt], [auth.introspection] or [auth.client_certificate], or leave [auth] out"
    )]
    NoScheme,
    /// The name of a principal is empty, too long, or contains `#` or control characters.
    #[error("principal {principal:?} must be 1 to 255 bytes without `#` and control characters")]
    Principal {
        /// The invalid name.
        principal: String,
    },
    /// A table `[[auth.api_key]]` does not set exactly one of `key_env`, `key_file` and `key_sha256`.
    #[error("api key of {principal}: exactly one of key_env, key_file and key_sha256 is required")]
    KeySource {
        /// The principal of the key.
        principal: String,
    },
    /// An environment variable with a key cannot be read.
    #[error("api key of {principal}: the environment variable {variable} {reason}")]
    KeyVariable {
        /// The principal of the key.
        principal: String,
        /// The name of the variable.
        variable: String,
        /// The reason, which does not contain the value of the variable.
        reason: VariableError,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A key is too short and could be guessed, or is longer than the limit on header values.
    #[error("api key of {principal} must have {minimum} to {maximum} bytes")]
    KeyLength {
        /// The principal of the key.
        principal: String,
        /// The minimum length of a key, in bytes.
        minimum: usize,
        /// The maximum length of a key, in bytes.
        maximum: usize,
    },
    /// A digest is not 64 hexadecimal digits.
    #[error("api key of {principal}: key_sha256 must be 64 hexadecimal digits")]
    KeyDigest {
        /// The principal of the key.
        principal: String,
    },
    /// Two tables `[[auth.api_key]]` have the same key.
    #[error("api key of {principal} is configured twice")]
    DuplicateKey {
        /// The principal in the later of the two tables.
        principal: String,
    },
    /// The configured header for API keys has an invalid name, or is the header of tokens.
    #[error("{name:?} cannot be the header of API keys")]
    HeaderName {
        /// The invalid name.
        name: String,
    },
    /// A field of `[auth.jwt]` has a value that cannot work.
    #[error("auth.jwt.{field} {problem}")]
    Jwt {
        /// The key in `[auth.jwt]`.
        field: &'static str,
        /// The fault in its value.
        problem: &'static str,
    },
    /// A field of `[auth.introspection]` has a value that cannot work.
    #[error("auth.introspection.{field} {problem}")]
    Introspection {
        /// The key in `[auth.introspection]`.
        field: &'static str,
        /// The fault in its value, which contains no secret.
        problem: String,
    },
    /// A key of `[auth.declare]` has a value that cannot be declared.
    #[error("auth.declare.{key} {problem}")]
    Declare {
        /// The key below `[auth.declare]`.
        key: String,
        /// The fault in its value.
        problem: &'static str,
    },
    /// The table `[auth.declare]` is set, and no tokens are accepted.
    #[error(
        "auth.declare says how callers get tokens, but no tokens are accepted; add [auth.jwt] or [auth.introspection]"
    )]
    DeclareWithoutTokens,
    /// A file of the issuer's keys cannot be used.
    #[error("unusable keys in {}", path.display())]
    Keys {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: KeyError,
    },
    /// The HTTP client for the issuer's keys cannot be set up.
    #[error("cannot set up the HTTP client")]
    HttpClient(#[source] reqwest::Error),
}

/// The reason why an environment variable has no usable value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// The environment variable is not set.
    #[error("is not set; set it before the start")]
    Absent,
    /// The value is not valid Unicode.
    #[error("has a value that is not UTF-8")]
    NotUnicode,
}

impl From<VarError> for VariableError {
    fn from(error: VarError) -> Self {
        match error {
            VarError::NotPresent => Self::Absent,
            VarError::NotUnicode(_) => Self::NotUnicode,
        }
    }
}

/// The reason why a key or a set of keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set")]
    NotAKeySet(#[source] serde_json::Error),
    /// The key set contains no key of a supported type.
    #[error("no key of a supported type")]
    NoUsableKey,
    /// The text is not a PEM block of the expected kind.
    #[error("not a PEM block `{expected}`; `openssl {command}` makes one")]
    NotPem {
        /// The label of the expected block.
        expected: &'static str,
        /// The openssl command that makes such a block from a key in another format.
        command: &'static str,
    },
    /// The key is damaged or of an unsupported type. Supported are Ed25519, P-256, and RSA of 2048 to 4096 bits, or up
    /// to 8192 bits for public keys.
    #[error("not a supported Ed25519, P-256 or RSA key")]
    UnsupportedKey,
    /// The key is for one algorithm, and another algorithm was requested.
    #[error("the key is for {actual}, not for {asked}")]
    OtherAlgorithm {
        /// The algorithm of the key.
        actual: Algorithm,
        /// The requested algorithm.
        asked: Algorithm,
    },
    /// A key id is empty.
    #[error("the key id is empty")]
    EmptyKid,
}
