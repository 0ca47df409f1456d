//! Which extensions take part in a request (A2A 1.0 section 4.6, topic "Extensions").
//!
//! Decided before any task, session or guest exists. A URI is a version: it matches to the letter or not at all.

use std::sync::Arc;

use annex_protocol::{A2aError, AgentExtension, ExtensionUri};
use annex_runtime::{Extension, Installed};

/// The installed extensions that the client asked for, in the order of the config.
///
/// One whose dependencies were not asked for stays inactive. Unknown URIs are ignored. Those that are `passed_on` are
/// activated by an agent that lives elsewhere.
///
/// # Errors
/// [`A2aError::ExtensionSupportRequired`] when a required extension, or one that it depends on, was not asked for.
pub(crate) fn negotiate(
    installed: &Installed,
    passed_on: &[AgentExtension],
    requested: &[ExtensionUri],
) -> Result<Vec<Arc<Extension>>, A2aError> {
    let asked = |uri: &ExtensionUri| requested.contains(uri);
    let mut active: Vec<Arc<Extension>> = Vec::new();
    let mut missing = Vec::new();
    for extension in installed.iter() {
        match first_missing(extension, installed, &asked) {
            None => active.push(Arc::clone(extension)),
            Some(uri) if extension.is_required() => missing.push(uri),
            Some(_) => {}
        }
    }
    missing.extend(passed_on.iter().filter(|other| other.required && !asked(&other.uri)).map(|other| &other.uri));
    if missing.is_empty() {
        return Ok(active);
    }
    Err(A2aError::ExtensionSupportRequired { missing: missing.into_iter().cloned().collect() })
}

/// The URI that the client has to ask for before the extension can be active: its own, or one that it depends on, however
/// far away.
fn first_missing<'a>(
    extension: &'a Extension,
    installed: &'a Installed,
    asked: &impl Fn(&ExtensionUri) -> bool,
) -> Option<&'a ExtensionUri> {
    if !asked(extension.uri()) {
        return Some(extension.uri());
    }
    // This ends: nothing depends on itself, because dependencies stand before what depends on them.
    extension.descriptor().depends_on.iter().find_map(|uri| match installed.iter().find(|other| other.uri() == uri) {
        Some(other) => first_missing(other, installed, asked),
        None => Some(uri),
    })
}
