//! Reads components from OCI registries and writes them there (OCI distribution specification 1.1), with their signatures and
//! SBOMs.
//!
//! A registry is a stranger: each digest is computed here, each answer has a bound, and each address passes
//! [`annex_egress::Screen`], also those of redirects and of token servers.
//!
//! - A [`Reference`] names a component. Only a [`Digest`] says which bytes that is.
//! - A [`Client`] pulls and pushes components, signatures and SBOMs.
//! - [`Credentials`] are in the config files of docker, and in the helpers that such a file names.
//! - A [`Cache`] keeps pulled components in a folder. The bytes are hashed on each read.
//! - A [`LayoutWriter`] writes components into an archive, from which a [`Layout`] reads them.
//!
//! Nothing here decides whether a component is trusted.

#![warn(missing_docs)]

mod cache;
mod client;
mod credentials;
mod digest;
mod error;
mod helper;
mod layout;
mod link;
mod manifest;
mod reference;
mod repository;
mod session;
mod token;

pub use cache::{Cache, Cached};
pub use client::{Client, ClientConfig, Login, Progress, Pulled, RegistryConfig, Resolved};
pub use credentials::{Credentials, CredentialsError};
pub use digest::{Digest, DigestError};
pub use error::RegistryError;
pub use helper::HelperError;
pub use layout::{Layout, LayoutError, LayoutWriter};
pub use manifest::{Layer, ManifestError, component_layer};
pub use reference::{Reference, ReferenceError, is_reference};

/// The maximum size of a component in bytes.
pub const MAX_COMPONENT_BYTES: u64 = 32 << 20;
/// The maximum size of a manifest or an index in bytes.
pub const MAX_MANIFEST_BYTES: usize = 1 << 20;
/// The maximum size of a signature in bytes.
pub const MAX_SIGNATURE_BYTES: usize = 64 << 10;
/// The maximum number of signatures of a component that are read.
pub const MAX_SIGNATURES: usize = 100;
/// The maximum size of an SBOM in bytes.
pub const MAX_SBOM_BYTES: usize = 8 << 20;
/// The maximum number of SBOMs of a component that are listed.
pub const MAX_SBOMS: usize = 10;
