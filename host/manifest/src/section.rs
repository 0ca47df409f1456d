//! The section of a component with its manifest. Only the imports prove what the component needs.

use std::collections::BTreeMap;

use annex_protocol::Json;
use serde::{Deserialize, Serialize};
use wasm_encoder::{ComponentSection as _, CustomSection};

use crate::error::ManifestError;

/// Custom section with the manifest of the component's project, as JSON.
pub const MANIFEST_SECTION: &str = "annex:manifest";

/// Maximum size of the section, in bytes.
pub const MAX_MANIFEST_BYTES: usize = 64 << 10;

/// Maximum length of a name, a version or a licence, in bytes.
const MAX_NAME: usize = 256;
/// Maximum length of a URI or a reason, in bytes.
const MAX_TEXT: usize = 2 << 10;
/// Maximum number of grants.
const MAX_GRANTS: usize = 64;
/// Maximum length of a text from the manifest in an error, in bytes.
const MAX_SHOWN: usize = 128;

/// The manifest that the project of a component has put into the component. Its texts may contain any characters, so
/// they are escaped when they are displayed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ManifestSection {
    /// Name of the project.
    pub name: String,
    /// Version of the project.
    pub version: String,
    /// The grants that the component needs.
    #[serde(default)]
    pub grants: ManifestGrants,
    /// The URI of the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The licence of the component, as an SPDX expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// The URL of the sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The parameters of the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<ManifestParameters>,
}

/// The grants in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ManifestGrants {
    /// The name of each grant that the component needs, as in a descriptor, with the author's reason.
    Reasons(BTreeMap<String, String>),
    /// The grants with which the project is tested, by their keys in a config. This form says nothing about what the
    /// component needs.
    Tested(Vec<String>),
}

/// The parameters in a manifest.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ManifestParameters {
    /// The JSON Schema of the parameters.
    pub schema: Json,
    /// An example of parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<Json>,
}

impl Default for ManifestGrants {
    fn default() -> Self {
        Self::Tested(Vec::new())
    }
}

impl ManifestSection {
    /// Parses the content of a section. `None` if the content has another format: other tools may use the name too.
    ///
    /// # Errors
    /// The section or one of its texts is too large.
    pub fn parse(section: &[u8]) -> Result<Option<Self>, ManifestError> {
        within("it", section.len(), MAX_MANIFEST_BYTES)?;
        let Ok(manifest) = serde_json::from_slice::<Self>(section) else { return Ok(None) };
        manifest.check_bounds()?;
        Ok(Some(manifest))
    }

    /// Writes the content of a section.
    ///
    /// # Errors
    /// The section or one of its texts is too large.
    pub fn to_section(&self) -> Result<Vec<u8>, ManifestError> {
        self.check_bounds()?;
        let section = serde_json::to_vec(self).map_err(ManifestError::Json)?;
        within("it", section.len(), MAX_MANIFEST_BYTES)?;
        Ok(section)
    }

    /// The author's reason for the grant with this name.
    #[must_use]
    pub fn reason(&self, grant: &str) -> Option<&str> {
        match &self.grants {
            ManifestGrants::Reasons(reasons) => reasons.get(grant).map(String::as_str),
            ManifestGrants::Tested(_) => None,
        }
    }

    /// Checks the length of each text, and the number of grants.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`], [`ManifestError::TooManyGrants`].
    pub fn check_bounds(&self) -> Result<(), ManifestError> {
        let Self { name, version, grants, uri, licence, source, parameters } = self;
        let texts = [
            ("name", Some(name), MAX_NAME),
            ("version", Some(version), MAX_NAME),
            ("uri", uri.as_ref(), MAX_TEXT),
            ("licence", licence.as_ref(), MAX_NAME),
            ("source", source.as_ref(), MAX_TEXT),
        ];
        for (key, text, limit) in texts {
            within(key, text.map_or(0, String::len), limit)?;
        }
        let named = match grants {
            ManifestGrants::Reasons(reasons) => {
                for (grant, reason) in reasons {
                    within("the name of a grant", grant.len(), MAX_NAME)?;
                    within(&format!("the reason for {}", shown(grant)), reason.len(), MAX_TEXT)?;
                }
                reasons.len()
            }
            ManifestGrants::Tested(names) => {
                names.iter().try_for_each(|name| within("the name of a grant", name.len(), MAX_NAME))?;
                names.len()
            }
        };
        if named > MAX_GRANTS {
            return Err(ManifestError::TooManyGrants { named, limit: MAX_GRANTS });
        }
        let Some(ManifestParameters { schema, example }) = parameters else { return Ok(()) };
        let length = schema.get().len() + example.as_ref().map_or(0, |example| example.get().len());
        within("parameters", length, MAX_MANIFEST_BYTES)
    }
}

/// Adds a section with this content behind a component.
pub fn append_section(component: &mut Vec<u8>, content: &[u8]) {
    CustomSection { name: MANIFEST_SECTION.into(), data: content.into() }.append_to_component(component);
}

fn within(what: &str, length: usize, limit: usize) -> Result<(), ManifestError> {
    if length <= limit { Ok(()) } else { Err(ManifestError::TooLarge { what: what.to_owned(), length, limit }) }
}

fn shown(text: &str) -> String {
    format!("`{}`", annex_text::line_within(text, MAX_SHOWN))
}

#[cfg(test)]
mod tests;
