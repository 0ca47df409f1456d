//! The manifest that a component's project has put into the component. Only the imports prove what the component needs,
//! so a manifest that says less or more is refused.

use std::collections::BTreeMap;

use annex_protocol::Json;
use serde::{Deserialize, Serialize};

use crate::confinement::grants::GrantNeeded;
use crate::error::LoadError;

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
    /// The name of each grant that the component needs ([`GrantNeeded::name`]), with the author's reason.
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
    /// [`LoadError::Manifest`] if the section or one of its texts is too large.
    pub(crate) fn parse(section: &[u8]) -> Result<Option<Self>, LoadError> {
        if section.len() > MAX_MANIFEST_BYTES {
            return Err(too_large(section.len()));
        }
        let Ok(manifest) = serde_json::from_slice::<Self>(section) else { return Ok(None) };
        manifest.check_bounds()?;
        Ok(Some(manifest))
    }

    /// Writes the content of a section.
    ///
    /// # Errors
    /// [`LoadError::Manifest`] if the section or one of its texts is too large.
    pub fn to_section(&self) -> Result<Vec<u8>, LoadError> {
        self.check_bounds()?;
        let section = serde_json::to_vec(self).map_err(|error| LoadError::Manifest { reason: error.to_string() })?;
        if section.len() > MAX_MANIFEST_BYTES { Err(too_large(section.len())) } else { Ok(section) }
    }

    /// The author's reason for a grant.
    #[must_use]
    pub fn reason(&self, grant: GrantNeeded) -> Option<&str> {
        match &self.grants {
            ManifestGrants::Reasons(reasons) => reasons.get(grant.name()).map(String::as_str),
            ManifestGrants::Tested(_) => None,
        }
    }

    /// Checks the length of each text, and the number of grants.
    pub(crate) fn check_bounds(&self) -> Result<(), LoadError> {
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
            return wrong(format!("it names {named} grants; at most {MAX_GRANTS} are allowed"));
        }
        let Some(ManifestParameters { schema, example }) = parameters else { return Ok(()) };
        let length = schema.get().len() + example.as_ref().map_or(0, |example| example.get().len());
        within("parameters", length, MAX_MANIFEST_BYTES)
    }

    /// Checks that the manifest names each of the grants that the imports and hooks need, and no other grant that only
    /// an import or a hook can need.
    pub(crate) fn check_needs(&self, needs: &[GrantNeeded]) -> Result<(), LoadError> {
        let ManifestGrants::Reasons(reasons) = &self.grants else { return Ok(()) };
        let missing: Vec<&str> =
            needs.iter().map(|grant| grant.name()).filter(|name| !reasons.contains_key(*name)).collect();
        let surplus = reasons.keys().filter(|name| match GrantNeeded::from_name(name) {
            Some(grant) => grant.has_import_or_hook() && !needs.contains(&grant),
            None => true,
        });
        let surplus: Vec<String> = surplus.map(|name| surplus_name(name)).collect();
        let mut wrongs = Vec::new();
        if !missing.is_empty() {
            wrongs
                .push(format!("it does not name {}, which the component's imports or hooks need", missing.join(", ")));
        }
        if !surplus.is_empty() {
            wrongs.push(format!("it names {}, which no import and no hook of the component needs", surplus.join(", ")));
        }
        if wrongs.is_empty() {
            return Ok(());
        }
        wrong(format!(
            "{}; the author has to change [grants] in annex-extension.toml and build the component again",
            wrongs.join("; ")
        ))
    }

    /// Checks the manifest against the descriptor of the loaded component: its URI, and the grants that it needs although
    /// no import and no hook needs them.
    pub(crate) fn check_descriptor(&self, uri: &str, grants: &[String]) -> Result<(), LoadError> {
        if let Some(named) = self.uri.as_ref().filter(|named| *named != uri) {
            return wrong(format!(
                "it has the URI {}, but the component describes itself as {}; the author has to change uri in \
                 annex-extension.toml and build the component again",
                shown(named),
                shown(uri)
            ));
        }
        let ManifestGrants::Reasons(reasons) = &self.grants else { return Ok(()) };
        let is_missing = |grant: &GrantNeeded| !grant.has_import_or_hook() && !reasons.contains_key(grant.name());
        match grants.iter().filter_map(|name| GrantNeeded::from_name(name)).find(is_missing) {
            Some(grant) => wrong(format!(
                "it does not name {}, which the component's descriptor needs; the author has to add it to [grants] in \
                 annex-extension.toml and build the component again",
                grant.name()
            )),
            None => Ok(()),
        }
    }
}

/// The name of a superfluous grant, with a similar name if the host does not know this one.
fn surplus_name(name: &str) -> String {
    if GrantNeeded::from_name(name).is_some() {
        return name.to_owned();
    }
    let meant = annex_text::nearest(name, GrantNeeded::ALL.map(GrantNeeded::name));
    let meant = meant.map(|meant| format!("; did you mean {}?", meant.name)).unwrap_or_default();
    format!("{} (this host has no such grant{meant})", shown(name))
}

fn within(what: &str, length: usize, limit: usize) -> Result<(), LoadError> {
    if length <= limit {
        return Ok(());
    }
    wrong(format!("{what} has {length} bytes; at most {limit} are allowed"))
}

fn too_large(length: usize) -> LoadError {
    LoadError::Manifest { reason: format!("it has {length} bytes; at most {MAX_MANIFEST_BYTES} are allowed") }
}

fn shown(text: &str) -> String {
    format!("`{}`", annex_text::line_within(text, MAX_SHOWN))
}

fn wrong<T>(reason: String) -> Result<T, LoadError> {
    Err(LoadError::Manifest { reason })
}

#[cfg(test)]
mod tests;
