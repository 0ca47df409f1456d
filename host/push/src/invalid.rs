//! The reasons that a push notification config cannot be used.

use annex_egress::Refused;

/// A fault in a config. The texts are for the client that registers it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// Its URL may not be called.
    #[error(transparent)]
    Url(#[from] Refused),
    /// The token cannot be sent in a header.
    #[error("the token is not printable ASCII of at most {limit} bytes")]
    Token {
        /// The longest token that is accepted, in bytes.
        limit: usize,
    },
    /// The authentication cannot be sent in a header.
    #[error("the authentication is not a scheme and printable ASCII of at most {limit} bytes")]
    Authentication {
        /// The most that scheme and credentials may take together, in bytes.
        limit: usize,
    },
}
