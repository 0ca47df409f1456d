//! Signatures over Agent Cards (specification section 8.4): JWS (RFC 7515) with a detached payload. The payload is the
//! card in the canonical form of RFC 8785, without `signatures` and default values.
//!
//! **Numbers.** RFC 8785 supports only doubles. An integer beyond ±(2^53 − 1), for instance in the parameters of an
//! extension, has no canonical form. A card with such an integer is neither signed nor verified, because the signature
//! would cover another number. Numbers with a fraction or an exponent become the nearest double.
//!
//! **Empty values.** The specification keeps required fields that are empty, and keeps extension parameters unchanged.
//! The official Python and JavaScript SDKs omit all empty values. A signature over a card with empty values therefore
//! verifies by only one of the two rules; [`VerifiedSignature::form`] names that rule. For a card without empty values
//! both rules give the same bytes.
//!
//! **Keys** come from the caller, who trusts them. A `jku` in a header is ignored.

pub(crate) mod canonical;
mod defaults;
mod signer;
mod verifier;

pub use canonical::{CanonicalError, CanonicalForm};
pub use signer::{SignError, Signer};
pub use verifier::{VerifiedSignature, VerifyError, verify};
