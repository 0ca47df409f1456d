//! Signatures over Agent Cards (specification section 8.4): JWS (RFC 7515) with a detached payload. The payload is the
//! card in the canonical form of RFC 8785, without `signatures` and default values.
//!
//! **Numbers.** RFC 8785 knows doubles only. An integer beyond ±(2^53 − 1), for instance in the parameters of an
//! extension, has no canonical form: a card with one is neither signed nor verified, because the signature would cover
//! another number. Numbers with a fraction or an exponent are the double nearest to them.
//!
//! **Empty values.** The specification keeps required fields that are empty, and extension parameters as they are. The
//! official Python and JavaScript SDKs leave out everything that is empty. A card with empty values verifies in one of
//! the two worlds only; [`Verified::form`] says in which. A card without any is the same in both.
//!
//! **Keys** are what the caller trusts. `jku` in a header is not followed.

mod canonical;
mod defaults;
mod signer;
mod verifier;

pub use canonical::{CanonicalError, CanonicalForm};
pub use signer::{SignError, Signer};
pub use verifier::{Verified, VerifyError, verify};
