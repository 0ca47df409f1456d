//! The reasons for refusing a mandate.

use std::fmt;

/// A reason with the error code of AP2, which the verifier of a mandate writes into its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The mandate cannot be verified.
    InvalidCredential(String),
    /// The mandate is verified, and does not authorize this checkout or payment.
    InvalidMandate(String),
    /// A constraint of the user is not met, or is not known here.
    UnresolvedConstraint(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, reason) = match self {
            Self::InvalidCredential(reason) => ("invalid_credential", reason),
            Self::InvalidMandate(reason) => ("invalid_mandate", reason),
            Self::UnresolvedConstraint(reason) => ("unresolved_constraint", reason),
        };
        write!(formatter, "{code}: {reason}")
    }
}
