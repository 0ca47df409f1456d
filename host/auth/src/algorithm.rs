//! The supported signature algorithms of RFC 7518 and RFC 8037. All are asymmetric.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A JWS algorithm. The enum has no symmetric algorithm and no `none`, so that no configuration can allow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256, keys of 2048 to 8192 bits.
    RS256,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// Ed25519.
    EdDSA,
}

impl Algorithm {
    /// The name in a JWS header.
    pub fn name(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::ES256 => "ES256",
            Self::EdDSA => "EdDSA",
        }
    }

    pub(crate) fn from_jws(algorithm: jsonwebtoken::Algorithm) -> Option<Self> {
        match algorithm {
            jsonwebtoken::Algorithm::RS256 => Some(Self::RS256),
            jsonwebtoken::Algorithm::ES256 => Some(Self::ES256),
            jsonwebtoken::Algorithm::EdDSA => Some(Self::EdDSA),
            _ => None,
        }
    }

    pub(crate) fn to_jws(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::RS256 => jsonwebtoken::Algorithm::RS256,
            Self::ES256 => jsonwebtoken::Algorithm::ES256,
            Self::EdDSA => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
