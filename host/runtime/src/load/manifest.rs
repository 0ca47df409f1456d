//! Compares the manifest that the component's project has put into the component with the component. Only the imports
//! prove what the component needs, so a manifest that says less or more is refused.

use annex_manifest::{ManifestError, ManifestGrants, ManifestSection};
use annex_protocol::JsonObject;

use crate::confinement::grants::GrantNeeded;
use crate::error::LoadError;

/// Maximum length of a text from the manifest in an error, in bytes.
const MAX_SHOWN: usize = 128;

impl From<ManifestError> for LoadError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest { reason: error.to_string() }
    }
}

/// Checks that the manifest names each of the grants that the imports and hooks need, and no other grant that only
/// an import or a hook can need.
pub(crate) fn check_needs(manifest: &ManifestSection, needs: &[GrantNeeded]) -> Result<(), LoadError> {
    let ManifestGrants::Reasons(reasons) = &manifest.grants else { return Ok(()) };
    let missing: Vec<&str> =
        needs.iter().map(|grant| grant.name()).filter(|name| !reasons.contains_key(*name)).collect();
    let surplus = reasons.keys().filter(|name| match GrantNeeded::from_name(name) {
        Some(grant) => grant.has_import_or_hook() && !needs.contains(&grant),
        None => true,
    });
    let surplus: Vec<String> = surplus.map(|name| surplus_name(name)).collect();
    let mut wrongs = Vec::new();
    if !missing.is_empty() {
        wrongs.push(format!("it does not name {}, which the component's imports or hooks need", missing.join(", ")));
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
/// no import and no hook needs them. A URI that is one of the operator's parameters is the operator's own choice.
pub(crate) fn check_descriptor(
    manifest: &ManifestSection,
    uri: &str,
    grants: &[String],
    parameters: &JsonObject,
) -> Result<(), LoadError> {
    if let Some(named) = manifest.uri.as_ref().filter(|named| *named != uri && !has_text(parameters, uri)) {
        return wrong(format!(
            "it has the URI {}, but the component describes itself as {}; the author has to change uri in \
             annex-extension.toml and build the component again",
            shown(named),
            shown(uri)
        ));
    }
    let ManifestGrants::Reasons(reasons) = &manifest.grants else { return Ok(()) };
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

/// The name of a superfluous grant, with a similar name if the host does not know this one.
fn surplus_name(name: &str) -> String {
    if GrantNeeded::from_name(name).is_some() {
        return name.to_owned();
    }
    let meant = annex_text::nearest(name, GrantNeeded::ALL.map(GrantNeeded::name));
    let meant = meant.map(|meant| format!("; did you mean {}?", meant.name)).unwrap_or_default();
    format!("{} (this host has no such grant{meant})", shown(name))
}

/// True if a parameter is this text.
fn has_text(parameters: &JsonObject, text: &str) -> bool {
    parameters.iter().any(|(_, value)| value.to::<String>().is_ok_and(|found| found == text))
}

fn shown(text: &str) -> String {
    format!("`{}`", annex_text::line_within(text, MAX_SHOWN))
}

fn wrong<T>(reason: String) -> Result<T, LoadError> {
    Err(LoadError::Manifest { reason })
}

#[cfg(test)]
mod tests;
