//! The manifest of a project, `annex-extension.toml`, and the section of a component that has its content for others.
//!
//! The runtime reads sections of strangers' components, and compares them with the components. `annex build` and the build of
//! the shipped components write sections. No file is read here.

#![warn(missing_docs)]

mod error;
mod project;
mod section;
mod toml_json;

pub use error::ManifestError;
pub use project::{Bindings, Build, FILE, Manifest, Parameters};
pub use section::{
    MANIFEST_SECTION, MAX_MANIFEST_BYTES, ManifestGrants, ManifestParameters, ManifestSection, append_section,
};
pub use toml_json::{object as json_of_table, value as json_of_toml};
