//! Reasons for refusing a push notification config.

use annex_egress::UrlRefusal;

/// A fault in a config. The texts are for the client that registers the config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// The URL may not be called.
    #[error(transparent)]
    Url(#[from] UrlRefusal),
    /// The token cannot be sent in a header.
    #[error("the token is not printable ASCII of at most {limit} bytes")]
    Token {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The authentication cannot be sent in a header.
    #[error("the authentication is not a scheme and printable ASCII of at most {limit} bytes")]
    Authentication {
        /// The limit for scheme and credentials together, in bytes.
        limit: usize,
    },
}
