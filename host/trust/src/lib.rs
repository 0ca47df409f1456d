//! Decides whether the signatures of a component satisfy the operator's policy. The crate does no I/O: its callers read the
//! files with keys, and get the signatures from a registry or a cache.
//!
//! - A [`PrivateKey`] signs the digest of an OCI manifest. The signature is a Sigstore bundle of version 0.3: a DSSE envelope
//!   around an in-toto statement.
//! - A [`Policy`] names the signers whose signatures a component needs, for each registry or prefix of a path.
//! - A signer is a key, or a keyless identity: an issuer with a subject or a repository, which a certificate of a trust root
//!   confirms.
//! - [`verify_file`] verifies the signature of a file that lies in no registry.
//! - A [`DenyList`] names digests that must not run, with or without signatures.
//!
//! Keys are ECDSA keys over P-256, and Ed25519 keys. Digests are SHA-256.

#![warn(missing_docs)]

mod bundle;
mod config;
mod deny;
mod key;
mod keyless;
mod policy;

pub use bundle::{BUNDLE_MEDIA_TYPE, MAX_BUNDLE_BYTES, MAX_BUNDLES, SignError, sign};
pub use config::{AnyOfConfig, RuleConfig, SignerConfig, TrustConfig, TrustError, Unruled};
pub use deny::{DenyList, DenyListError};
pub use key::{KeyError, PrivateKey, PublicKey};
pub use policy::{Policy, Refusal, Verified, verify_file};

/// The maximum size of a file with a key or a trust root in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;
